"""The examples of docs/export.md run, in its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.blocks import blocks

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
EXAMPLES = [block.source for block in blocks(PAGE)]


def test_the_first_example(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    exec(compile(EXAMPLES[0], "export.md", "exec"), found)
    assert "input: float32[batch, 8]" in capsys.readouterr().out
    x = found["torch"].randn(7, 8)
    expected = found["model"](x)
    for name in ("module", "compiled"):
        found["torch"].testing.assert_close(found[name](x), expected)
    found["torch"].testing.assert_close(found["converted"].module()(x), expected)


def test_the_example_with_a_condition(tmp_path):
    path = tmp_path / "halves.py"
    path.write_text(EXAMPLES[1])
    found: dict = {}
    exec("import torch, dovetail", found)
    with pytest.raises(ValueError, match=r"n % 2 == 0, as .*halves.py:2 relies on; here x.shape\[0\] \(n\) = 5"):
        exec(compile(EXAMPLES[1], str(path), "exec"), found)
    assert len(EXAMPLES) == 2

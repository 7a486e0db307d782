"""The examples of docs/warm-start.md run, in its order."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "warm-start.md"


def test_the_examples(processes, tmp_path):
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    program = f"import os\nos.chdir({str(tmp_path)!r})\n" + "\n".join(examples) + "\nshow(info.files)"
    found = processes.run(program, tmp_path / "cache")
    assert len(examples) == 2 and int(found.shown[0]) > 3

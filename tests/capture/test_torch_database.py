"""Two configurations of every module in PyTorch's database; `make modules` takes them all."""

from __future__ import annotations

import pytest

from tests.capture.module_sweep import BREAKS, LAZY, Row, check, rows


def sample() -> dict[str, Row]:
    """The first row of each module, in training, and the last, in evaluation."""
    found: dict[str, list[Row]] = {}
    for row in rows():
        found.setdefault(row.info.name, []).append(row)
    return {row.name: row for each in found.values() for row in (each[0], each[-1])}


ROWS = sample()


#: The database gives it samples of another type than its inputs, which eager refuses.
LEFT_OUT = "FractionalMaxPool"


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
@pytest.mark.parametrize("name", [n for n in ROWS if LEFT_OUT not in n])
def test_module(name, backend):
    row = ROWS[name]
    code = check(row, backend)
    assert code is None or code in (BREAKS.get(row.info.name), LAZY)

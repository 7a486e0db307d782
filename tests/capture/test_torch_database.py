"""One configuration of every module in PyTorch's database; `make modules` takes them all."""

from __future__ import annotations

import pytest

from tests.capture.module_sweep import BREAKS, Row, check, rows


def sample() -> dict[str, Row]:
    """The first row of each module, in training, and the last, in evaluation."""
    found: dict[str, list[Row]] = {}
    for row in rows():
        found.setdefault(row.info.name, []).append(row)
    return {row.name: row for each in found.values() for row in (each[0], each[-1])}


ROWS = sample()


#: Lazy modules have no shapes to copy; the database gives FractionalMaxPool samples of another type than its inputs.
LEFT_OUT = ("Lazy", "FractionalMaxPool")


@pytest.mark.parametrize("name", [n for n in ROWS if not any(word in n for word in LEFT_OUT)])
def test_module(name):
    row = ROWS[name]
    code = check(row, "eager")
    assert code is None or code == BREAKS.get(row.info.name)

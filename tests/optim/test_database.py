"""PyTorch's optimizer database: a sample of what `make optimizers` runs in full."""

from __future__ import annotations

import pytest

from tests.optim.database import Case, cases, difference


def sample() -> list[Case]:
    """For each optimizer and way to compute it one configuration, another one each."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in cases():
        found.setdefault((case.info.optim_cls.__name__, case.name.rpartition("-")[2]), []).append(case)
    return [group[k % len(group)] for k, group in enumerate(found.values())]


@pytest.mark.parametrize("case", sample(), ids=lambda case: case.name)
def test_configuration(case):
    assert not difference(case)

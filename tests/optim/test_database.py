"""PyTorch's optimizer database: a sample of what `make optimizers` runs in full."""

from __future__ import annotations

import pytest

import dovetail
from tests.optim.database import Case, cases, difference, run


def sample() -> list[Case]:
    """For each optimizer and way to compute it one configuration, another one each."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in cases():
        found.setdefault((case.info.optim_cls.__name__, case.name.rpartition("-")[2]), []).append(case)
    return [group[k % len(group)] for k, group in enumerate(found.values())]


@pytest.mark.parametrize("case", sample(), ids=lambda case: case.name)
def test_configuration(case):
    assert not difference(case)


#: Whose steps are more than one graph: it decides by what tensors hold, and its gradients are sparse.
IN_PARTS = ("LBFGS", "SparseAdam")


@pytest.mark.parametrize(
    "case", [c for c in sample() if not c.name.startswith(IN_PARTS)], ids=lambda case: case.name
)
def test_twenty_steps_are_few_compilations(case, monkeypatch):
    """Without state, with it, and with the numbers that change as inputs."""
    made, compile = [], dovetail.compile
    monkeypatch.setattr(dovetail, "compile", lambda fn: made.append(compile(fn, fullgraph=True)) or made[-1])
    run(case, compiled=True, steps=20)
    assert len(made[0]._dovetail_dispatcher.entries) <= 3

"""`one_hot` of what is no class raises what eager raises, in graphs that were compiled for good classes too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import dovetail

PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "returned": lambda x: F.one_hot(x, 3),
    "summed": lambda x: F.one_hot(x, num_classes=3).sum(0),
    "multiplied": lambda x: F.one_hot(x, 3).float() @ torch.ones(3, 2),
    "as many as rows": lambda x: F.one_hot(x, x.shape[0]) * 2,
    "found out": lambda x: F.one_hot(x).sum(),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_classes_that_are_none(name: str, backend: str, dynamic: bool) -> None:
    fn = PROGRAMS[name]
    dovetail.reset()
    compiled = dovetail.compile(fn, backend=backend, dynamic=dynamic)
    for classes in ([0, 2, 1], [0, 5, 1], [-1, 0, 2], [2, 2, 2], [3, 0, 0]):
        outcomes = []
        for function in (fn, compiled):
            try:
                outcomes.append(function(torch.tensor(classes)).tolist())
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]

"""A user's backend that makes constants of what it is shown is asked again for other numbers and sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx.experimental.proxy_tensor import make_fx

import dovetail

#: A function of sizes and numbers, and its arguments for one of them.
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "an integer": (lambda a, d: a * d, lambda n: (torch.arange(3.0), n)),
    "a number": (lambda a, d: a * d, lambda n: (torch.arange(3.0), n + 0.5)),
    "a size": (lambda a: a * a.shape[0], lambda n: (torch.arange(float(n)),)),
    "a size that only operators see": (lambda a: a.flatten() + 1, lambda n: (torch.ones(n, 2),)),
    "a view": (lambda a: a.view(-1, 2).sum(0) / a.numel(), lambda n: (torch.arange(2.0 * n),)),
    "a part": (lambda a, d: a[:d] * 2, lambda n: (torch.arange(20.0), n)),
}


def traced(graph: Any, inputs: Any) -> Any:
    return make_fx(graph)(*inputs)


def functional(graph: Any, inputs: Any) -> Any:
    return aot_module_simplified(graph, inputs, fw_compiler=lambda graph, inputs: graph.forward)


def as_it_is(graph: Any, inputs: Any) -> Any:
    return graph


def run(graph: Any, inputs: Any) -> Any:
    graph(*inputs)
    return graph.forward


@pytest.mark.parametrize("backend", [traced, functional, as_it_is, run])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_eagers_for_every_size(name: str, backend: Any) -> None:
    fn, make = PROGRAMS[name]
    dovetail.reset()
    compiled = dovetail.compile(fn, backend=backend, dynamic=True, fullgraph=True)
    for n in (5, 6, 7):
        torch.testing.assert_close(compiled(*make(n)), fn(*make(n)), rtol=0, atol=0)
    entries = len(compiled._dovetail_dispatcher.entries)
    assert entries == (1 if backend is as_it_is else 3 if backend in (traced, functional) else entries)

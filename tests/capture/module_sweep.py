"""Every module of PyTorch's database (`torch.testing._internal.common_modules`), captured and compared with eager.

    python -m tests.capture.module_sweep [part of a name] [--backend dovetail]

A row is a module class with one set of constructor and call arguments, in training or in evaluation.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

import dovetail
from dovetail.errors import GraphBreakError
from tests.opdb.entries import database

#: Modules that are no single graph in some configurations, and why.
BREAKS = {
    "nn.BatchNorm1d": "data-dependent-value",  # the momentum of a cumulative average is a count in a tensor
    "nn.BatchNorm2d": "data-dependent-value",
    "nn.BatchNorm3d": "data-dependent-value",
    "nn.GaussianNLLLoss": "data-dependent-value",
    "nn.CTCLoss": "data-dependent-output",
    "nn.LinearCrossEntropyLoss": "graph-argument",
    "nn.TransformerEncoder": "data-dependent-branch",
    "nn.Transformer": "data-dependent-branch",
}


class Row:
    def __init__(self, info: Any, index: int, given: Any, training: bool) -> None:
        self.info, self.given, self.training = info, given, training
        self.name = f"{info.name}[{index}{'' if training else ', eval'}]"

    def make(self) -> tuple[nn.Module, Any]:
        """A module and its arguments, the same ones every time."""
        torch.manual_seed(0)
        made = self.given.constructor_input
        module = self.info.module_cls(*copy.deepcopy(made.args), **copy.deepcopy(made.kwargs)).train(self.training)
        call = self.given.forward_input
        return module, pytree.tree_map(_own, (call.args, call.kwargs))


def _own(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return copy.deepcopy(value)


def rows() -> Iterator[Row]:
    default = torch.get_default_dtype()
    database()  # its import knows how to do without a package that the databases want
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_modules import module_db
    torch.set_default_dtype(default)  # which PyTorch's own tests change
    for info in module_db:
        for training in (True, False):
            torch.manual_seed(0)
            inputs = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
            )
            for index, given in enumerate(inputs):
                yield Row(info, index, given, training)


def check(row: Row, backend: str) -> str | None:
    """None if equal to eager as one graph, else the code of the break; raises AssertionError for another result."""
    (theirs, given), (ours, same) = row.make(), row.make()
    expected = _outcome(theirs, theirs, *given)
    code = None
    try:
        actual = _outcome(ours, _compiled(ours, backend, True), *same)
    except GraphBreakError as error:
        ours, same = row.make()
        actual, code = _outcome(ours, _compiled(ours, backend, False), *same), error.code
    close = 0.0 if backend == "eager" else 1e-4
    torch.testing.assert_close(actual, expected, equal_nan=True, rtol=close, atol=close)
    return code


def _compiled(module: nn.Module, backend: str, fullgraph: bool) -> Callable[..., Any]:
    dovetail.reset()
    return dovetail.compile(module, backend=backend, fullgraph=fullgraph)


def _outcome(module: nn.Module, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    torch.manual_seed(0)
    result = call(*args, **kwargs)
    leaves = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    differentiable = [t for t in leaves if t.requires_grad]
    if differentiable:
        sum((t * t).sum() for t in differentiable).backward()
    parameters = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    inputs = [t.grad for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.grad is not None]
    return [t.detach() for t in leaves], parameters, inputs, dict(module.named_buffers())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--backend", default="eager")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    for row in rows():
        if chosen.name not in row.name:
            continue
        try:
            code = check(row, chosen.backend)
        except Exception as error:  # a row must not end the sweep
            code = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        counts[code or "one graph"] += 1
        if code is not None and BREAKS.get(row.info.name) != code:
            print(f"{row.name}: {code}")
    print(dict(counts))


if __name__ == "__main__":
    main()

"""Every module of PyTorch's database (`torch.testing._internal.common_modules`), compiled and compared with eager.

    python -m tests.capture.module_sweep [part of a name] [--backend aot_eager]

A row is a module class with one set of constructor and call arguments, in training or in evaluation: two steps
forward and backward, with the same outputs, gradients, accumulated gradients and buffers, laid out the same. At the
end: a table of what failed, by cause, and the share of rows that are right.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import nn

import dovetail
from dovetail.errors import GraphBreakError
from tests.databases import load
from tests.opdb.sweep import cause

#: Modules that are no single graph in some configurations, and why.
BREAKS = {
    "nn.BatchNorm1d": "graph-argument",  # the momentum of a cumulative average is a count in a tensor
    "nn.BatchNorm2d": "graph-argument",
    "nn.BatchNorm3d": "graph-argument",
    "nn.GaussianNLLLoss": "data-dependent-value",
    "nn.CTCLoss": "data-dependent-output",
    "nn.LinearCrossEntropyLoss": "graph-argument",
    "nn.TransformerEncoder": "data-dependent-branch",
    "nn.Transformer": "data-dependent-branch",
}

#: Modules whose parameters have shapes only after their first call break there.
LAZY = "lazy-module"


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
    for info in load("common_modules").module_db:
        for training in (True, False):
            torch.manual_seed(0)
            inputs = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
            )
            for index, given in enumerate(inputs):
                yield Row(info, index, given, training)


def check(row: Row, backend: str) -> str | None:
    """None if equal to eager as one graph, else the code of the break; raises AssertionError for another result.

    Raises Refused where eager itself fails.
    """
    (theirs, given), (ours, same) = row.make(), row.make()
    try:
        expected = _outcome(theirs, theirs, *given)
    except Exception as error:
        raise Refused(str(error)) from error
    code = None
    try:
        actual = _outcome(ours, _compiled(ours, backend, True), *same)
    except GraphBreakError as error:
        ours, same = row.make()
        actual, code = _outcome(ours, _compiled(ours, backend, False), *same), error.code
    close = 0.0 if backend == "eager" else 1e-4
    torch.testing.assert_close(actual, expected, equal_nan=True, rtol=close, atol=close, check_stride=True)
    return code


class Refused(Exception):
    """Eager does not run this row."""


def _compiled(module: nn.Module, backend: str, fullgraph: bool) -> Callable[..., Any]:
    dovetail.reset()
    return dovetail.compile(module, backend=backend, fullgraph=fullgraph)


def _outcome(module: nn.Module, call: Callable[..., Any], args: Any, kwargs: Any) -> list[Any]:
    return [_step(module, call, args, kwargs, seed) for seed in range(2)]


def _step(module: nn.Module, call: Callable[..., Any], args: Any, kwargs: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    result = call(*args, **kwargs)
    leaves = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    differentiable = [t for t in leaves if t.requires_grad]
    if differentiable:
        torch.autograd.backward(differentiable, [torch.randn_like(t) for t in differentiable])
    parameters = {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}
    inputs = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    gradients = [t.grad.clone() for t in inputs if t.is_leaf and t.grad is not None]
    buffers = {name: b.clone() for name, b in module.named_buffers()}
    asked = torch.tensor([t.requires_grad for t in leaves])
    return [t.detach() for t in leaves], asked, parameters, gradients, buffers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--backend", default="dovetail")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    todo = [row for row in rows() if chosen.name in row.name]
    counts: Counter[str] = Counter()
    failed: dict[str, list[str]] = defaultdict(list)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        for row in progress.track(todo, description="modules"):
            verdict = judged(row, chosen.backend)
            counts[verdict.partition(":")[0]] += 1
            if verdict not in ("one graph", "listed break", "eager fails"):
                failed[cause(verdict)].append(row.name)
    tried = len(todo) - counts["eager fails"]
    table = Table("cause", "rows", title="Failures by cause")
    for text, names in sorted(failed.items(), key=lambda item: -len(item[1])):
        table.add_row(escape(text), escape(f"{len(names)}: {', '.join(names[:4])}" + (" …" if names[4:] else "")))
    if failed:
        Console().print(table)
    right = counts["one graph"] + counts["listed break"]
    print(f"{right} of {tried} rows right ({right / max(tried, 1):.1%}); {dict(counts)}")


def judged(row: Row, backend: str) -> str:
    try:
        code = check(row, backend)
    except Refused:
        return "eager fails"
    except Exception as error:  # a row must not end the sweep
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    if code is None:
        return "one graph"
    return "listed break" if code in (BREAKS.get(row.info.name), LAZY) else f"break: {code}"


if __name__ == "__main__":
    main()

"""Mistakes put into the compiler, and programs of a hundred operators that meet them: each is to be cut down.

    python -m tests.minify.faults [NAME ...] [--seconds 300]        all of them, with how far each was cut down
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dovetail import building, compilation, pipeline
from dovetail.codegen import cpu
from dovetail.commands.minify import minified
from dovetail.diagnostics import repro
from dovetail.minify.candidate import Candidate
from dovetail.minify.trial import TrialEnding
from dovetail.ops.table import ROWS
from dovetail.runtime import cpu as cpu_runtime

Patch = Callable[[pytest.MonkeyPatch], None]
CHOICES = {"fullgraph": True, "dynamic": None, "backend": "dovetail", "options": {}}
MOST = 10  # operators that may be left


def program(x, w, scale, shift):
    x = x.flip(0)
    for _ in range(4):
        x = F.layer_norm(x, (16,), scale, shift)
        q = x @ w
        weights = torch.softmax(q @ q.transpose(1, 2) / 4, -1)
        x = F.gelu(x + weights @ q)
        x = torch.sin(x) * torch.sigmoid(x)
        x = torch.cat([x[..., :8], torch.tanh(x[..., 8:])], -1)
        x = x + torch.sqrt(x.abs() + 0.1).cumsum(1) * 0.1
        x = x + torch.exp(-x.abs())
        x = torch.where(x > 0, x, 0.1 * x) + torch.log1p(x.abs()).mean(-1, keepdim=True)
    return x.sum(-1), x


def inputs(train: bool) -> list[torch.Tensor]:
    made = [torch.randn(4, 8, 16), torch.randn(16, 16) / 4, torch.rand(16), torch.randn(16) / 4]
    return [t.requires_grad_(train) for t in made]


# ---------------------------------------------------------------- mistakes


class Bug(Exception):
    """A mistake of ours."""


def failing(*_: Any, **__: Any) -> Any:
    raise Bug("injected")


def endless(*_: Any, **__: Any) -> Any:
    time.sleep(3600)


def crashing(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def lowering(name: str, instead: str | Callable[..., Any]) -> Patch:
    """An operator is lowered as another one is, or by a function that fails."""
    rule = ROWS[f"aten::{instead}"].lowering if isinstance(instead, str) else instead
    return lambda patch: patch.setitem(ROWS, f"aten::{name}", ROWS[f"aten::{name}"]._replace(lowering=rule))


def stage(owner: Any, name: str, where: Callable[..., bool], then: Callable[..., Any] = failing) -> Patch:
    """A stage does something else where its arguments and its result are of a kind."""

    def put(patch: pytest.MonkeyPatch) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            return then(result) if where(result, *args) else result

        patch.setattr(owner, name, wrapped)

    return put


def calls(name: str) -> Callable[..., bool]:
    """Does a graph that is given call the operator?"""
    return lambda result, graph, *_: any(name in str(node.target) for node in graph.graph.nodes)


def mentions(*words: str) -> Callable[..., bool]:
    """Has what was generated these words?"""
    return lambda made, *_: all(word in made.text for word in words)


def reads(word: str) -> Callable[..., bool]:
    return lambda result, kernels, *_: any(word in kernel.text for kernel in kernels)


def for_symbols(name: str, instead: str) -> Patch:
    """An operator is lowered as another one is where sizes are symbolic."""
    original = building.lower

    def lower(graph: Any, options: Any) -> Any:
        fakes = [node.meta.get("val", node.meta.get("fake")) for node in graph.graph.nodes]
        sizes = [size for fake in fakes if isinstance(fake, torch.Tensor) for size in fake.shape]
        with pytest.MonkeyPatch.context() as patch:
            if not all(isinstance(size, int) for size in sizes):
                lowering(name, instead)(patch)
            return original(graph, options)

    return lambda patch: patch.setattr(building, "lower", lower)


def transposed(run: Callable[..., Any]) -> Callable[..., Any]:
    """The same values, laid out otherwise."""
    return lambda *inputs: tuple(t if t.dim() < 2 else t.mT.contiguous().mT for t in run(*inputs))


def one_too_far(emit: Any, out: Any, self: Any, dims: Any) -> Any:
    """`flip` that reads from one row further, and beyond the last."""
    return self.remapped(out.sizes, out.strides, lambda i: (self.sizes[0] - i[0], *i[1:]), None)


def rewritten(old: str, new: str) -> Callable[[Any], Any]:
    return lambda made: dataclasses.replace(made, text=made.text.replace(old, new))


#: A mistake, and whether it takes gradients to meet it.
FAULTS: dict[str, tuple[Patch, bool]] = {
    "lowered as another: gelu": (lowering("gelu", "relu"), False),
    "lowered as another: sin": (lowering("sin", "cos"), False),
    "lowered as another: sigmoid": (lowering("sigmoid", "tanh"), True),
    "lowered as another: exp": (lowering("exp", "expm1"), False),
    "lowered as another: sqrt": (lowering("sqrt", "rsqrt"), True),
    "lowered to what is NaN": (lowering("sin", "acosh"), False),
    "gradient lowered as another": (lowering("tanh_backward", "sigmoid_backward"), True),
    "lowering fails: tanh": (lowering("tanh", failing), False),
    "lowering fails: softmax": (lowering("_softmax", failing), True),
    "lowering fails: layer norm": (lowering("native_layer_norm", failing), False),
    "lowering fails: cat": (lowering("cat", failing), True),
    "lowering has no end": (lowering("log1p", endless), False),
    "lowering crashes": (lowering("gelu", crashing), False),
    "normalizing fails": (stage(pipeline, "normalize", calls("cumsum")), False),
    "the joint graph fails": (stage(pipeline, "normalize_joint", calls("layer_norm")), True),
    "a fused kernel is wrong": (
        stage(cpu, "generate", mentions("fcmp", "fmul"), rewritten("fmul", "fadd")), False,
    ),
    "generating a kernel fails": (stage(cpu, "generate", mentions("fcmp", "fdiv")), False),
    "the layout of a result is wrong": (
        stage(building.host, "generate", mentions("(128, 16, 1, )"), rewritten("(128, 16, 1, )", "(128, 1, 8, )")),
        False,
    ),
    "loading crashes": (stage(cpu_runtime, "load", reads("fcmp"), crashing), False),
    "wrong for symbolic sizes alone": (for_symbols("sin", "cos"), False),
    "a result is laid out otherwise": (stage(pipeline, "assemble", lambda *_: True, transposed), False),
    "memory outside is read": (lowering("flip", one_too_far), False),
    "guards fail": (stage(compilation.guards, "build", lambda entry, captured, *_: len(captured.inputs) > 1), False),
}  # fmt: skip


@contextlib.contextmanager
def injected(name: str) -> Iterator[dict[str, Any]]:
    """What a repro of the program defines, while the mistake is there."""
    put, train = FAULTS[name]
    with pytest.MonkeyPatch.context() as patch:
        put(patch)
        varying = ["x.shape[0]"] if "symbolic" in name else []
        yield {"function": program, "args": inputs(train), "kwargs": {}, "choices": CHOICES, "varying": varying}


def cut_down(started: dict[str, Any], seconds: float) -> tuple[Candidate, TrialEnding]:
    call = started["function"], started["args"], started["kwargs"], frozenset(started["varying"])
    return minified(started, lambda: repro.run(*call, **started["choices"]), seconds, 20.0, lambda *_: None)


def main(names: list[str], seconds: float) -> int:
    torch.set_num_threads(1)
    failed = 0
    for name in names or FAULTS:
        start = time.monotonic()
        with injected(name) as started:
            found, failure = cut_down(started, seconds)
        failed += len(found.calls) > MOST
        took = time.monotonic() - start
        print(f"{name:36} {len(found.calls):3} operators, {took:4.0f} s: {failure.kind}", flush=True)
    return failed


if __name__ == "__main__":
    given = sys.argv[1:]
    limit = float(given.pop(given.index("--seconds") + 1)) if "--seconds" in given else 300.0
    sys.exit(main([word for word in given if word != "--seconds"], limit))

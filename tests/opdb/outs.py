"""`out=` of every operator that takes one: `python -m tests.opdb.outs [--backend NAME] [NAME...]` prints what differs.

The tensors given are of the result's shape, empty, larger, laid out otherwise or of another type; from outside
or made by the program itself, which then uses their sizes. Where eager raises, the compiled program must raise.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

import dovetail
from tests.opdb.entries import database

#: A tensor to write to, in place of the result.
GIVEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "alike": torch.zeros_like,
    "empty": lambda r: torch.empty(0, dtype=r.dtype, device=r.device),
    "larger": lambda r: torch.zeros((*r.shape, 2), dtype=r.dtype, device=r.device),
    "strided": lambda r: torch.zeros([*r.shape, 2], dtype=r.dtype, device=r.device)[..., 0],
    "wider": lambda r: torch.zeros(r.shape, dtype=torch.complex128, device=r.device),
    "narrower": lambda r: torch.zeros(r.shape, dtype=torch.bool, device=r.device),
}
#: What they hold does not depend on the arguments.
RANDOM = frozenset(("empty", "empty_like", "empty_strided", "bernoulli", "multinomial", "normal", "rand", "randn"))
#: Of another layout than in rows, eager leaves these as they were, or gives them another layout.
UNTOUCHED = frozenset(("narrow_copy", "nn_functional_avg_pool3d", "nn_functional_gelu", "nn_functional_linear"))


def operators() -> list[Any]:
    found = [op for op in database() if op.supports_out and op.name.split("_like")[0] not in RANDOM]
    return sorted(found, key=lambda op: op.formatted_name)


def differences(op: Any, most: int = 2, backend: str = "dovetail") -> Iterator[str]:
    dtype = torch.float32 if torch.float32 in op.supported_dtypes("cpu") else next(iter(op.supported_dtypes("cpu")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        for k, sample in enumerate(list(op.sample_inputs("cpu", dtype))[:most]):
            args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
            results = op.op(*args, **kwargs)
            single = isinstance(results, torch.Tensor)
            leaves = [results] if single else pytree.tree_leaves(results)
            if not all(isinstance(r, torch.Tensor) for r in leaves):
                continue
            kinds = [kind for kind in GIVEN if kind != "strided" or op.formatted_name not in UNTOUCHED]
            for kind, make in ((kind, GIVEN[kind]) for kind in kinds):
                for inside in (False, True):
                    found = _difference(op.op, args, kwargs, leaves, single, make, inside, backend)
                    if found:
                        where = "made inside" if inside else "from outside"
                        yield f"{op.formatted_name} sample {k}, {kind}, {where}: {found}"


def _difference(
    fn: Callable[..., Any], args: Any, kwargs: Any, leaves: list[torch.Tensor], single: bool,
    make: Callable[..., torch.Tensor], inside: bool, backend: str,
) -> str:  # fmt: skip
    def program(args: Any, kwargs: Any, outs: Any) -> Any:
        outs = [make(o) for o in outs] if inside else outs
        result = fn(*args, **kwargs, out=outs[0] if single else tuple(outs))
        same = result is outs[0] if single else [r is o for r, o in zip(result, outs, strict=True)]
        seen = [(str(o.shape), steps(o), o.dtype, o.numel() == 0, o + 0, torch.zeros(o.shape)) for o in outs]
        return same, seen, outs

    outcomes = []
    for function in (program, dovetail.compile(program, backend=backend)):
        given = pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
        torch.manual_seed(2)
        try:
            outcomes.append(function(*given, [r.clone() if inside else make(r) for r in leaves]))
        except Exception as error:  # whatever the operator raises is what is compared
            outcomes.append(error)
    return _compared(*outcomes)


def steps(tensor: torch.Tensor) -> str:
    """The strides that count."""
    return str([step for n, step in zip(tensor.shape, tensor.stride(), strict=True) if n > 1])


def _compared(eager: Any, compiled: Any) -> str:
    if isinstance(eager, Exception) or isinstance(compiled, Exception):
        return "" if type(eager) is type(compiled) else f"eager {eager!r:.200}, compiled {compiled!r:.200}"
    mine, theirs = pytree.tree_flatten(compiled), pytree.tree_flatten(eager)
    if mine[1] != theirs[1]:
        return f"{mine[1]} for eager's {theirs[1]}"
    for a, b in zip(mine[0], theirs[0], strict=True):
        if not isinstance(b, torch.Tensor):
            if a != b:
                return f"{a} for eager's {b}"
        elif a.shape != b.shape or a.dtype != b.dtype or steps(a) != steps(b):
            return f"{a.dtype} {tuple(a.shape)} {a.stride()} for eager's {b.dtype} {tuple(b.shape)} {b.stride()}"
        else:
            close = torch.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)
            if not (close if b.is_floating_point() or b.is_complex() else torch.equal(a, b)):
                return "other values"
    return ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.opdb.outs")
    parser.add_argument("--backend", default="dovetail")
    parser.add_argument("--most", type=int, default=2)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    for number, operator in enumerate(operators()):
        if not options.names or operator.formatted_name in options.names:
            for line in differences(operator, options.most, options.backend):
                print(line, flush=True)
            if number % 50 == 49:
                dovetail.reset()

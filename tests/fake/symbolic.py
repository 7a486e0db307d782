"""PyTorch's operator database with symbolic sizes: `python -m tests.fake.symbolic [--samples 3] [--only NAME]`.

For each size that occurs in a sample's tensors, every dimension of that size becomes one symbol. The predicted sizes
must be eager's, and again at another size where what was relied on holds.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dovetail.errors import Unsupported
from dovetail.ir import dims, dimvalues
from dovetail.ops.fake import FakeMode, FakeTensor
from dovetail.ops.fake.rules.layout import contiguous
from dovetail.ops.fake.symbolic.retry import called
from dovetail.ops.fake.symbolic.sizes import EQUAL, Sizes
from dovetail.ops.fake.symbolic.symint import dim_of, symint
from tests.opdb.entries import Case, Entry, entries, samples

#: Sizes besides the sample's own.
OTHERS = (1, 2, 3)
#: In the message of an operator that reads a tensor's elements.
READS = "data is not allocated yet"


@dataclass
class Found:
    """`wrong` in words; `free`: no size was made a constant; `other`: sizes compared besides the sample's own."""

    wrong: str = ""
    free: bool = False
    other: int = 0


def check(case: Case, size: int) -> Found | None:
    """None where nothing can be said: eager raises, or the result depends on values."""
    real = _run(case.fn, *case.fresh())
    if isinstance(real, Exception):
        return None
    sizes = Sizes()
    symbol = sizes.symbol("s0", size)
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: _fake(t, sizes, symbol, size), (case.args, case.kwargs))
    try:
        with torch.no_grad(), FakeMode():
            made = called(case.fn, args, kwargs)
    except Unsupported:
        return None
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
        if READS in str(error):
            return None
        return Found(f"{type(error).__name__}: {str(error)[:200]}")
    found = Found(_difference(made, real, size), not any(f.sign == EQUAL for f in sizes.facts))
    for other in (size + n for n in OTHERS):
        env = {dims.as_symbol(symbol): other}
        if found.wrong or not all(_true(f.sign, dimvalues.evaluate(f.dim, env)) for f in sizes.facts):
            continue
        again = pytree.tree_map_only(torch.Tensor, lambda t, n=other: _resized(t, size, n), (case.args, case.kwargs))
        real = _run(case.fn, *again)
        if not isinstance(real, Exception):
            found.other += 1
            found.wrong = _difference(made, real, other)
    return found


def _run(fn: Any, args: Any, kwargs: Any) -> Any:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            return fn(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
            return error


def _true(sign: str, value: int) -> bool:
    return {"==": value == 0, "!=": value != 0, ">=": value >= 0}[sign]


def _fake(tensor: torch.Tensor, sizes: Sizes, symbol: Any, size: int) -> Any:
    shape = tuple(symint(sizes, symbol) if n == size else n for n in tensor.shape)
    return FakeTensor(shape, contiguous(shape), tensor.dtype, tensor.device)


def _resized(tensor: torch.Tensor, size: int, other: int) -> torch.Tensor:
    """Elements of the tensor again, where there are not enough."""
    shape = [other if n == size else n for n in tensor.shape]
    wanted = torch.Size(shape).numel()
    flat = tensor.reshape(-1)
    return flat.repeat(-(-wanted // max(flat.numel(), 1)))[:wanted].reshape(shape)


def _difference(made: Any, real: Any, size: int) -> str:
    """Sizes and dtypes, not strides: those are ours to choose."""
    mine, theirs = ([t for t in pytree.tree_leaves(r) if isinstance(t, torch.Tensor)] for r in (made, real))
    if len(mine) != len(theirs):
        return f"{len(mine)} results, eager gives {len(theirs)}"
    for k, (m, t) in enumerate(zip(mine, theirs, strict=True)):
        shape = tuple(dimvalues.evaluate(dim_of(n), {s: size for s in dims.symbols(dim_of(n))}) for n in m.shape)
        if shape != tuple(t.shape) or m.dtype != t.dtype:
            return f"at {size}: result {k} is {tuple(m.shape)} = {shape} {m.dtype}, in eager {tuple(t.shape)} {t.dtype}"
    return ""


def plain(case: Case) -> bool:
    """Are all of its tensors strided and contiguous?"""
    tensors = [t for t in pytree.tree_leaves((case.args, case.kwargs)) if isinstance(t, torch.Tensor)]
    return bool(tensors) and all(t.layout is torch.strided and t.is_contiguous() for t in tensors)


def cases(entry: Entry, most: int) -> Iterator[tuple[Case, int]]:
    """Each sample with each size to be made a symbol."""
    for case in samples(entry, most):
        if plain(case) and "in place" not in case.label:
            tensors = [t for t in pytree.tree_leaves((case.args, case.kwargs)) if isinstance(t, torch.Tensor)]
            for size in sorted({n for t in tensors for n in t.shape if n > 1})[:3]:
                yield case, size


def floats() -> list[Entry]:
    return [e for e in entries() if e.dtype is torch.float32]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fake.symbolic")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    constant: Counter[str] = Counter()
    for entry in floats():
        if options.only not in entry.name:
            continue
        for case, size in cases(entry, options.samples):
            found = check(case, size)
            if found is None:
                counts["undecided"] += 1
                continue
            counts["wrong" if found.wrong else "free" if found.free else "constant"] += 1
            counts["other sizes"] += found.other
            if found.wrong:
                print(f"{entry.name} {case.label}, {size}: {found.wrong}", flush=True)
            elif not found.free:
                constant[entry.name] += 1
    print(dict(counts))
    print("made constants:", ", ".join(f"{name} {count}" for name, count in constant.most_common()))
    return counts["wrong"] > 0


if __name__ == "__main__":
    raise SystemExit(main())

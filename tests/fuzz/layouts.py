"""Every operator of PyTorch's database behind a convolution: forward and backward, compiled and in eager.

    python -m tests.fuzz.layouts [--count 4] [--first 0] [--only REGEX] [--jobs 2]

A pass lays out the convolution's images with the channels last, which nothing that follows may show. Tensors of a
sample come out of a convolution with an identity as its weight, and then through slices, permutations, expansions,
flattened and divided dimensions; so their values are exact, and their strides are whatever such programs give.
Outputs, their strides and gradients are compared with eager's. A layout that is wrong may corrupt memory: programs run
in processes of their own. With OPDB_DEVICE=cuda they run on a GPU.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import dovetail
from tests.fuzz.workers import Spoilt, spread
from tests.layouts.calls import REFUSED
from tests.layouts.experiment import close
from tests.limits import time_limit
from tests.opdb.compare import Mismatch, described, values, widened
from tests.opdb.compare import dense as packed
from tests.opdb.entries import DEVICE, database, has_matrix
from tests.opdb.gradients import OTHER_LAYOUTS, dense, wider
from tests.opdb.stages import DRAWN, SEED, UNDEFINED, TimedOut

Step = Callable[[torch.Tensor], torch.Tensor]
Item = tuple[str, int]
BACKENDS = ("aot_eager", "aot_eager", "dovetail")
SECONDS = 60
#: More elements than this are left out: gradients take long.
LARGEST = 5000
#: Eager reads their weights as rows, whatever they are: on a CPU, where what calls them sees to it, or on a GPU.
WRONG_IN_EAGER = frozenset(("native_group_norm",) if DEVICE == "cpu" else ("nn_functional_embedding",))


# ---------------------------------------------------------------- tensors that come out of a convolution


@dataclass(frozen=True)
class Source:
    """`view(convolution(image, weight))` has the sample's values; `text` says what the view does."""

    image: torch.Tensor
    weight: torch.Tensor
    view: Step
    text: str


def source(t: torch.Tensor, chosen: random.Random) -> Source | None:
    """None for what no image gives."""
    if t.dtype is not torch.float32 or t.layout is not torch.strided or not 0 < t.numel() < LARGEST:
        return None
    steps: list[tuple[str, Step]] = []
    sizes = list(t.shape)
    for change in (_expand, _flatten, _four, _slice, _narrow, _permute):
        change(sizes, steps, chosen)

    def view(image: torch.Tensor) -> torch.Tensor:
        for _, step in reversed(steps):
            image = step(image)
        return image

    image = torch.zeros(sizes, device=t.device)
    places = view(torch.arange(image.numel(), device=t.device).view(sizes))
    image.view(-1)[places.reshape(-1)] = t.detach().reshape(-1)
    weight = torch.eye(sizes[1], max(sizes[1], 2), device=t.device)[:, :, None, None]
    if sizes[1] == 1:
        image = F.pad(image, (0, 0, 0, 0, 0, 1))
    if chosen.random() < 0.25:
        image = image.to(memory_format=torch.channels_last)
    return Source(image, weight, view, ", ".join(name for name, _ in reversed(steps)))


def _expand(sizes: list[int], steps: list[tuple[str, Step]], chosen: random.Random) -> None:
    wide = [d for d, n in enumerate(sizes) if n > 1]
    if wide and chosen.random() < 0.15:
        whole, d = tuple(sizes), chosen.choice(wide)
        sizes[d] = 1
        steps.append((f"expand to {whole}", lambda x: x.expand(whole)))


def _flatten(sizes: list[int], steps: list[tuple[str, Step]], chosen: random.Random) -> None:
    split = [(d, k) for d, n in enumerate(sizes) for k in (2, 3, 5) if n > k and n % k == 0]
    if split and chosen.random() < 0.5:
        d, k = chosen.choice(split)
        sizes[d : d + 1] = [sizes[d] // k, k]
        steps.append((f"flatten {d}", lambda x: x.flatten(d, d + 1)))


def _four(sizes: list[int], steps: list[tuple[str, Step]], chosen: random.Random) -> None:
    """As many dimensions as images have."""
    while len(sizes) > 4:
        d = chosen.randrange(len(sizes) - 1)
        parts = sizes[d], sizes[d + 1]
        sizes[d : d + 2] = [parts[0] * parts[1]]
        steps.append((f"unflatten {d}", lambda x, d=d, parts=parts: x.reshape(*x.shape[:d], *parts, *x.shape[d + 1 :])))
    while len(sizes) < 4:
        d = chosen.randrange(len(sizes) + 1)
        sizes.insert(d, 2)
        steps.append((f"select {d}", lambda x, d=d: x.select(d, 1)))


def _slice(sizes: list[int], steps: list[tuple[str, Step]], chosen: random.Random) -> None:
    if chosen.random() < 0.4:
        d = chosen.randrange(4)
        size, first = sizes[d], chosen.randrange(2)
        sizes[d] += 1
        steps.append((f"slice {d}", lambda x: x.narrow(d, first, size)))


def _narrow(sizes: list[int], steps: list[tuple[str, Step]], chosen: random.Random) -> None:
    """An image of one row or column is laid out both ways at once."""
    for d in range(4):
        if sizes[d] == 1 and chosen.random() < 0.8:
            sizes[d] = 2
            steps.append((f"narrow {d}", lambda x, d=d: x.narrow(d, 0, 1)))


def _permute(sizes: list[int], steps: list[tuple[str, Step]], chosen: random.Random) -> None:
    if chosen.random() < 0.6:
        order = chosen.sample(range(4), 4)
        whole = list(sizes)
        for k, d in enumerate(order):
            sizes[d] = whole[k]
        steps.append((f"permute {order}", lambda x: x.permute(order)))


# ---------------------------------------------------------------- programs


@dataclass(frozen=True)
class Program:
    """`call(tensors)`; `text` says what it is."""

    call: Callable[[list[torch.Tensor]], Any]
    tensors: list[torch.Tensor]
    operator: str
    text: str


@cache
def operators() -> dict[str, Any]:
    found = {op.formatted_name: op for op in database() if torch.float32 in op.dtypes}
    return {name: op for name, op in found.items() if name not in WRONG_IN_EAGER}


def program(name: str, seed: int) -> Program | None:
    """None where the database has no sample for it."""
    chosen, op = random.Random(f"{name} {seed}"), operators()[name]
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [s for s in op.sample_inputs(DEVICE, torch.float32) if has_matrix(s)]
    if not found:
        return None
    sample = chosen.choice(found)
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
    tensors, made = [torch.ones(2, 3, 16, 16, device=DEVICE), torch.ones(2, 3, 1, 1, device=DEVICE)], []
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            found_source = source(leaf, chosen) if chosen.random() < 0.8 else None
            made.append((k, len(tensors), found_source))
            tensors += [leaf] if found_source is None else [found_source.image, found_source.weight]

    def call(given: list[torch.Tensor]) -> Any:
        values, image = list(leaves), F.conv2d(given[0], given[1])  # which makes the images outweigh the weights
        for k, at, origin in made:
            values[k] = given[at] if origin is None else origin.view(F.conv2d(given[at], given[at + 1]))
        args, kwargs = pytree.tree_unflatten(values, spec)
        return op.op(*args, **kwargs), image

    text = "; ".join(f"{k}: {origin.text}" for k, _, origin in made if origin is not None)
    sizes = [tuple(t.shape) for t in leaves if isinstance(t, torch.Tensor)]
    return Program(call, tensors, op.name, f"sizes {sizes}, {text}")


def outcome(call: Callable[..., Any], tensors: list[torch.Tensor], learns: bool, number: int = 0) -> dict[str, Any]:
    """Outputs, and gradients of tensors for fixed tangents, laid out in ways that the number chooses."""
    given = [t.detach().clone(memory_format=torch.preserve_format) for t in tensors]
    given = [t.requires_grad_(learns and (t.is_floating_point() or t.is_complex())) for t in given]
    torch.manual_seed(SEED)
    with torch.set_grad_enabled(learns):
        outputs = [t for t in pytree.tree_leaves(call(given)) if isinstance(t, torch.Tensor)]
    found: dict[str, Any] = {f"output {k}": t.detach() for k, t in enumerate(outputs)}
    ends = [t for t in outputs if t.requires_grad]
    if ends:
        torch.manual_seed(SEED)
        tangents = [tangent(t, number) for t in ends]
        leaves = [t for t in given if t.requires_grad]
        gradients = torch.autograd.grad(ends, leaves, tangents, allow_unused=True)
        found |= {f"gradient {k}": g for k, g in enumerate(gradients)}
    return found


def tangent(t: torch.Tensor, number: int) -> torch.Tensor:
    """Laid out as the output, in rows, with its dimensions the other way round, or one part for all.

    Only the first says how eager lays out gradients: a compiled backward pass wants tangents like the outputs, and
    copies others.
    """
    made = torch.randn(t.shape, dtype=wider(t.dtype), device=t.device).to(t.dtype)
    if number % 4 == 0:
        return torch.empty_like(t).copy_(made)
    if number % 4 == 1:
        return made
    turned = list(range(t.dim()))[::-1]
    if number % 4 == 2:
        return made.permute(turned).contiguous().permute(turned)
    return made[:1].expand(t.shape) if t.dim() else made


def check(name: str, seed: int) -> str | None:
    """What differs from eager, in one line; None also where eager refuses the program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with time_limit(SECONDS, TimedOut(f"more than {SECONDS} s")):
                return _check(name, seed)
        except TimedOut as error:
            return str(error)


def _check(name: str, seed: int) -> str | None:
    made, backend = program(name, seed), BACKENDS[seed % len(BACKENDS)]
    if made is None:
        return None
    for learns in (True, False):
        try:
            want = outcome(made.call, made.tensors, learns, seed)
            break
        except REFUSED:
            continue
    else:
        return None
    dovetail.reset()
    compiled = dovetail.compile(made.call, backend=backend, options=DRAWN)
    try:
        got = outcome(compiled, made.tensors, learns, seed)
        _compare(made, got, want, learns, seed)
    except TimedOut:
        raise
    except Exception as error:  # it is what is reported
        line = (str(error).strip().splitlines() or [""])[0]
        return f"{backend}, {type(error).__name__}: {line[:200]} ({made.text[:300]})"
    return None


def _compare(made: Program, got: dict[str, Any], want: dict[str, Any], learns: bool, seed: int) -> None:
    if got.keys() != want.keys():
        raise Mismatch(f"{sorted(got)} for eager's {sorted(want)}")
    true: list[dict[str, Any]] = []

    def exact(place: str) -> Any:
        if not true:
            try:
                true.append(outcome(made.call, widened(made.tensors), learns, seed))
            except REFUSED:
                true.append({})
        return true[0].get(place)

    for place, eager in want.items():
        mine = got[place]
        if (mine is None) != (eager is None):
            if bool(((mine if eager is None else eager) != 0).any()):
                raise Mismatch(f"{place} is {'None' if mine is None else 'a tensor'}, eager's is not")
        elif eager is not None:
            if made.operator in UNDEFINED:
                mine, eager = mine.zero_(), eager.zero_()
            told = seed % 4 == 0 and dense(eager) and made.operator not in OTHER_LAYOUTS
            if place.startswith("gradient") and not told:
                mine, eager = packed(mine).contiguous(), packed(eager).contiguous()
            described(place, mine, eager)
            if not close(mine, eager) and not _amplified(mine, want, exact, place):
                values(place, packed(mine), packed(eager), lambda place=place: exact(place))  # type: ignore[misc]


def _amplified(mine: torch.Tensor, want: dict[str, Any], exact: Callable[[str], Any], place: str) -> bool:
    """Is it no further from the exact result than some times what eager is off anywhere in this program?

    Sums that cancel, and a variance of nothing, make any rounding as large in one gradient as in the next.
    """
    true = {name: exact(name) for name in want}
    if any((eager is None) != (true[name] is None) or eager is not None and not eager.is_floating_point()
           for name, eager in want.items()):
        return False
    off = [_error(eager, true[name]) for name, eager in want.items() if eager is not None]
    return _error(mine, true[place]) <= 16 * max(off)


def _error(found: torch.Tensor, true: torch.Tensor) -> float:
    """NaN, which is less than nothing, where either has one."""
    return float((packed(found).double() - packed(true)).abs().max()) if found.numel() else 0.0


def items(only: str, first: int, count: int) -> list[Item]:
    names = sorted(name for name in operators() if re.search(only, name))
    return [(name, seed) for seed in range(first, first + count) for name in names]


def _tried(item: Item) -> tuple[Item, str | None]:
    torch.set_num_threads(1)
    torch._C._set_cudnn_allow_tf32(False)  # convolutions with an identity give what they were given
    found = check(*item)
    if found is not None and "CUDA error" in found:
        raise Spoilt((item, found))
    return item, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=4, help="programs of each operator")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="", help="a regular expression for operators' names")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    todo, failed = items(options.only, options.first, options.count), 0
    for (name, seed), found in spread(_tried, todo, options.jobs, lambda item, how: (item, f"crash: {how}")):
        if found is not None:
            failed += 1
            print(f"{name} {seed}: {found}", flush=True)
    print(f"{failed} of {len(todo)} programs differ")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

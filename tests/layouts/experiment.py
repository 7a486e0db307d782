"""Does an operator give the same for the same values in other layouts, and do fakes say how the result is laid out?

An experiment is one call: run as it is, then with its tensors laid out otherwise (channels last, dimensions in other
orders, gaps between them; all tensors, one, all but one), in a process of its own, since a kernel that trusts its
arguments' layout may write anywhere.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dovetail.errors import DovetailError
from dovetail.ops.fake import FakeMode, to_fake
from dovetail.ops.fake.tensor import run
from dovetail.ops.table import row_of
from tests.layouts.calls import Call
from tests.opdb.stages import UNDEFINED

#: Layouts tried of one call.
VARIANTS = 8
Order = tuple[int, ...]


@dataclass(frozen=True)
class Verdict:
    """`tried` layouts were compared, fakes said of `refused` that the operator raises; `fault`: what was wrong.

    `images`: whether all images with the channels last were tried, as eager lays them out, and what was wrong then.
    """

    name: str
    tried: int = 0
    refused: int = 0
    fault: str = ""
    images: bool = False
    image_fault: str = ""


def isolated(calls: list[Call]) -> list[Verdict]:
    """Each experiment in a forked process; on a GPU, which forks cannot use, in this one, until one spoils it.

    Several share a process until one of them ends it or finds a fault, which may be another's: those are run alone.
    """
    if any(t.device.type != "cpu" for call in calls for t in call.tensors()):
        return list(_here(calls))
    verdicts, how = _forked(calls)
    if len(calls) == 1:
        return verdicts or [Verdict(calls[0].name, 1, 0, f"crash: {how}")]
    found = [isolated([call])[0] if v.fault else v for call, v in zip(calls, verdicts, strict=False)]
    return found + [isolated([call])[0] for call in calls[len(verdicts) :]]


def _here(calls: list[Call]) -> Iterator[Verdict]:
    for call in calls:
        try:
            verdict = experiment(call)
            torch.cuda.synchronize()
        except RuntimeError as error:  # an assertion of a kernel, after which nothing runs
            yield Verdict(call.name, 1, 0, f"raises {str(error).splitlines()[0]}"[:200])
            return
        yield verdict


def _forked(calls: list[Call]) -> tuple[list[Verdict], str]:
    """What a process found before it ended, and how."""
    mine, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with os.fdopen(theirs, "wb", buffering=0) as pipe:
                for call in calls:
                    pipe.write(pickle.dumps(experiment(call)))
        finally:
            os._exit(0)
    os.close(theirs)
    verdicts = []
    with os.fdopen(mine, "rb") as pipe, contextlib.suppress(EOFError):
        while True:
            verdicts.append(pickle.load(pipe))
    status = os.waitpid(child, 0)[1]
    return verdicts, signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit status {status}"


def experiment(call: Call) -> Verdict:
    """Nothing is tried where no tensor has another layout, or PyTorch has no name for the operator's result."""
    if call.operator._schema.is_mutable or not any(map(movable, call.tensors())):
        return Verdict(call.name)
    want = call.run()
    images = with_images(call)
    seen = None if images is None else compared(images, want)
    tried = refused = 0
    fault = ""
    for other in variants(call):
        found = compared(other, want)
        refused += found is None
        tried += found is not None
        if found:
            fault = found
            break
    return Verdict(call.name, tried, refused, fault, seen is not None, seen or "")


def compared(other: Call, want: Any) -> str | None:
    """What is wrong with a call's results in another layout; None where fakes say that the operator refuses it."""
    try:
        promised = predicted(other)
    except RuntimeError:
        return None
    except DovetailError as error:
        return f"prediction: {error}"[:200]
    try:
        got = other.run()
    except RuntimeError as error:
        return f"raises {str(error).splitlines()[0]}"[:200]
    fault = different(other, got, want) or surprising(other, got, promised)
    given = [(tuple(t.shape), t.stride()) for t in other.tensors()]
    return f"{fault} (sizes and strides {given})"[:400] if fault else ""


def misjudged(call: Call) -> str:
    """How the fakes' layout of the result as it is differs from the real one; empty where it does not."""
    if call.operator._schema.is_mutable:
        return ""
    try:
        return surprising(call, call.run(), predicted(call))
    except (RuntimeError, DovetailError):
        return ""


# ---------------------------------------------------------------- layouts


def movable(t: torch.Tensor) -> bool:
    return t.layout is torch.strided and not t.is_quantized and sum(n > 1 for n in t.shape) > 1


def variants(call: Call) -> Iterator[Call]:
    """The call with tensors laid out otherwise: channels last first."""
    chosen = random.Random(repr(call.key()))
    count = sum(map(movable, call.tensors()))
    last = [Layout(None)] * count
    plans = [last]
    if count > 1:
        plans += [[layout if k == one else None for k in range(count)] for one in (0, count - 1) for layout in last[:1]]
        plans.append([None, *last[1:]])
    while len(plans) < VARIANTS:
        plans.append([Layout(chosen.random(), chosen.random() < 0.3) if chosen.random() < 0.7 else None
                      for _ in range(count)])
    seen = {call.key()}
    for plan in plans:
        given = iter(plan)
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda t: t if not movable(t) else laid_out(t, next(given)), (call.args, call.kwargs))
        other = Call(call.operator, args, kwargs)
        if other.key() not in seen:
            seen.add(other.key())
            yield other


def with_images(call: Call) -> Call | None:
    """The call with everything of four dimensions laid out channels last."""
    if not any(movable(t) and t.dim() == 4 for t in call.tensors()):
        return None
    change = lambda t: laid_out(t, Layout(None)) if t.dim() == 4 and movable(t) else t
    return Call(call.operator, *pytree.tree_map_only(torch.Tensor, change, (call.args, call.kwargs)))


@dataclass(frozen=True)
class Layout:
    """Dimensions in an order that the number chooses, None: channels last; with `gaps` between them or not."""

    order: float | None
    gaps: bool = False

    def dimensions(self, rank: int) -> list[int]:
        """From slowest to fastest."""
        dimensions = list(range(rank))
        if self.order is None:
            return dimensions[::-1] if rank == 2 else [0, *dimensions[2:], 1]
        random.Random(self.order).shuffle(dimensions)
        return dimensions


def laid_out(t: torch.Tensor, layout: Layout | None) -> torch.Tensor:
    """The same elements. What lies in gaps is NaN, or the largest number."""
    if layout is None:
        return t
    order = layout.dimensions(t.dim())
    sizes = [t.shape[d] + (3 if layout.gaps and d == order[-1] else 0) for d in order]
    memory = torch.empty(sizes, dtype=t.dtype, device=t.device)
    memory.fill_(float("nan") if t.is_floating_point() or t.is_complex() else True)
    inner = memory[..., : t.shape[order[-1]]].permute([order.index(d) for d in range(t.dim())])
    return inner.copy_(t)


# ---------------------------------------------------------------- comparison


def predicted(call: Call) -> Any:
    with torch.no_grad(), FakeMode():
        args, kwargs = pytree.tree_map_only(torch.Tensor, to_fake, (call.args, call.kwargs))
        return run(call.operator, args, kwargs)


def different(call: Call, got: Any, want: Any) -> str:
    """Which result has other values."""
    if call.name.partition(".")[0] in UNDEFINED:
        return ""
    opaque = row_of(call.operator).opaque
    given = 0.1 * max(map(largest, call.tensors()), default=0.0)  # sums may cancel
    for k, (mine, theirs) in enumerate(zip(_results(got), _results(want), strict=True)):
        if k in opaque:
            continue
        if not isinstance(theirs, torch.Tensor):
            if mine != theirs:
                return f"result {k} is {mine}, not {theirs}"
        elif mine.shape != theirs.shape or mine.dtype != theirs.dtype or not close(mine, theirs, given):
            return f"result {k} has other values"
    return ""


def close(mine: torch.Tensor, theirs: torch.Tensor, scale: float = 0.0) -> bool:
    """Equal but for rounding, of numbers as large as `scale`."""
    if mine.layout is not torch.strided or mine.is_quantized or not mine.numel():
        return True
    mine, theirs = (t.resolve_conj().resolve_neg() for t in (mine, theirs))
    if mine.dtype is torch.complex32:
        mine, theirs = mine.to(torch.complex64), theirs.to(torch.complex64)
    if torch.equal(mine, theirs):
        return True
    if not (mine.is_floating_point() or mine.is_complex()):
        return False
    half = torch.finfo(mine.dtype).eps > 1e-4
    size = max(largest(theirs), scale)
    return torch.allclose(mine, theirs, rtol=0, atol=(3e-2 if half else 1e-4) * size, equal_nan=True)


def largest(t: torch.Tensor) -> float:
    """Of the finite elements."""
    if t.layout is not torch.strided or not (t.is_floating_point() or t.is_complex()):
        return 0.0
    finite = t[torch.isfinite(t)]
    return finite.abs().max().item() if finite.numel() else 0.0


def surprising(call: Call, got: Any, promised: Any) -> str:
    """Which result is laid out otherwise than promised."""
    opaque = row_of(call.operator).opaque
    results = zip(_results(got), _results(promised), strict=False)
    for k, (mine, fake) in enumerate(results):
        if not isinstance(mine, torch.Tensor) or mine.layout is not torch.strided or k in opaque:
            continue
        if not isinstance(fake, torch.Tensor):
            return f"result {k} was not predicted"
        if tuple(fake.shape) != tuple(mine.shape) or fake.dtype != mine.dtype:
            return f"result {k} was predicted as {fake.dtype} {tuple(fake.shape)}, is {mine.dtype} {tuple(mine.shape)}"
        if mine.numel() and _steps(mine) != _steps(fake):
            return f"result {k} {tuple(mine.shape)} was predicted with strides {fake.stride()}, has {mine.stride()}"
    return ""


def _steps(t: torch.Tensor) -> list[int]:
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1]


def _results(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]

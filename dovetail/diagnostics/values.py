"""Are compiled results eager's? Compared with float64's where rounding may have gone another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dovetail.ir.copies import copies
from dovetail.ir.records import dataclass

NOISE = 64.0  # roundings that a result may consist of
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}


class WrongValues(AssertionError):
    """A compiled program gives other numbers than eager mode, by more than rounding."""


def off(want: torch.Tensor, got: torch.Tensor) -> float:
    """The difference relative to the tensor's size; infinite for other shapes and for NaN in one of both."""
    if want.shape != got.shape or want.dtype != got.dtype:
        return float("inf")
    if not want.is_floating_point() and not want.is_complex():
        return 0.0 if torch.equal(want, got) else float("inf")
    x, y = (t.detach().to(torch.complex128 if t.is_complex() else torch.float64) for t in (want, got))
    if not torch.equal(x.isnan(), y.isnan()):
        return float("inf")
    x, y = x.nan_to_num(), y.nan_to_num()
    size, distance = float(x.norm()), float((x - y).norm())
    return distance / size if size else float("inf") if distance else 0.0


def as_near(eager: torch.Tensor, ours: torch.Tensor, exact: torch.Tensor | None, whole: float) -> bool:
    """Is ours no further from the float64 result than 3 times eager's distance?

    Where nothing of eager's is right, as of a gradient that is zero but for rounding, it must be as small beside
    `whole` as rounding is.
    """
    if exact is None or exact.shape != eager.shape or not eager.is_floating_point() or eager.shape != ours.shape:
        return False
    mistake = off(exact, eager.double())
    if mistake >= 1 and not ours.isnan().any():
        return float((ours.double() - exact).norm()) <= NOISE * torch.finfo(eager.dtype).eps * whole
    return off(exact, ours.double()) <= 3 * mistake < float("inf")


def differs(
    want: Sequence[torch.Tensor], got: Sequence[torch.Tensor], exact: Sequence[torch.Tensor] | None,
    allowed: Callable[[int], float] = lambda k: 0.0,
) -> str:  # fmt: skip
    """What differs first by more than rounding, and by more than `allowed` for it; empty if nothing does."""
    if len(want) != len(got):
        return f"{len(got)} tensors instead of {len(want)}"
    whole = max((float(t.double().nan_to_num().norm()) for t in want if t.is_floating_point()), default=0.0)
    for k, (x, y) in enumerate(zip(want, got, strict=True)):
        error = off(x, y)
        if error > max(TOLERANCE.get(x.dtype, 1e-3), allowed(k)):
            if not as_near(x, y, exact[k] if exact and len(exact) == len(want) else None, whole):
                return f"tensor {k + 1} is off by {error:.2g}" if error < float("inf") else f"tensor {k + 1} is another"
    return ""


def tensors(tree: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def doubled(tree: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, tree)


@dataclass
class ComparedValues:
    """What a call gives: its results, what it has written to its inputs, and its gradients; and of each result how it
    is laid out, whether it requires gradients, and which tensor it shares its memory with: an input or a result."""

    tensors: list[torch.Tensor]
    facts: list[tuple[tuple[int, ...], bool, str]]


def outcome(call: Callable[..., Any], inputs: Sequence[Any]) -> ComparedValues:
    """That of a call on copies."""
    given, leaves = copies(inputs)
    with torch.random.fork_rng(devices=sorted({t.device.index for t in tensors(list(inputs)) if t.is_cuda})):
        results = tensors(call(*given))
        roots = [t for t in results if t.requires_grad]
        gradients: Sequence[Any] = ()
        if roots and leaves and torch.is_grad_enabled():
            tangents = [torch.ones_like(t) for t in roots]
            gradients = torch.autograd.grad(roots, leaves, tangents, allow_unused=True)
    written = [t for t in given if isinstance(t, torch.Tensor)]
    found = [t.detach() for t in (*results, *written, *gradients) if t is not None]
    return ComparedValues(found, [_facts(k, results, written) for k in range(len(results))])


def _facts(number: int, results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Any:
    tensor = results[number]
    if tensor.layout is not torch.strided or not tensor.numel():
        return (), tensor.requires_grad, ""
    strides = tuple(step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    named = [(f"{kind} {k + 1}", t) for kind, ts in (("input", inputs), ("result", results)) for k, t in enumerate(ts)]
    return strides, tensor.requires_grad, next(name for name, t in named if _memory(t) == _memory(tensor))


def _memory(tensor: torch.Tensor) -> int:
    """Where it is kept; for those that are nowhere, a number of their own."""
    kept = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return tensor.untyped_storage().data_ptr() if kept else -id(tensor)


def _told(number: int, want: Any, got: Any) -> str:
    """How one result is another than it should be."""
    names = ("the strides", "requires_grad", "the memory of")
    different = (f"{what} {y}, not {x}" for what, x, y in zip(names, want, got, strict=True) if x != y)
    return next((f"result {number + 1} has {words}" for words in different), "")


def wrong(graph: Callable[..., Any], compiled: Callable[..., Any], inputs: Sequence[Any]) -> str:
    """What `compiled` gives for inputs like these that the graph, run by PyTorch, does not; empty if it is right."""
    want, got = outcome(graph, inputs), outcome(compiled, inputs)
    words = differs(want.tensors, got.tensors, None) and differs(want.tensors, got.tensors, _exact(graph, inputs))
    return words or next(filter(None, map(_told, range(len(want.facts)), want.facts, got.facts)), "")


def _exact(graph: Callable[..., Any], inputs: Sequence[Any]) -> list[torch.Tensor] | None:
    try:
        return outcome(graph, doubled(list(inputs))).tensors
    except (RuntimeError, TypeError):  # an operator that wants the type that it had
        return None


def compared(
    compiled: Callable[..., Any], graph: Callable[..., Any], report: Callable[[Exception, Sequence[Any]], None]
) -> Callable[..., Any]:
    """`config.repro_level = 4`: `compiled`, except that where it is wrong `report` is told and the graph's own results
    are given.

    Both run on copies first, gradients included, so that the program sees one run and one draw of random numbers.
    """

    def call(*inputs: Any) -> Any:
        words = wrong(graph, compiled, inputs)
        if not words:
            return compiled(*inputs)
        report(WrongValues(words), inputs)
        return graph(*inputs)

    return call

"""Gradients that can be differentiated in turn: the captured graph once more, compiled with its gradients where that is
possible (`further_gradients.py`), else in eager, with its history.

The backward program computes numbers; how they depend on the inputs is known to PyTorch's engine only if the
program's own operators run under it, with their detached parts and blocks without gradients. Inputs that the call has
written to are replaced by others: `autograd/second_forward.py` has said that nothing depends on what they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch

from dovetail.ir.aten import DATA, JointGraph, Returned
from dovetail.ir.devices import HOST
from dovetail.ir.settings import AUTOCAST_DEVICES
from dovetail.runtime.call.further_gradients import FurtherGradients

CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: an input of a "
    "compiled function was changed before it was differentiated twice"
)


class LetGo:
    """Inputs under hooks of the program's that say what becomes of kept tensors, which may be packed to be freed: those
    that the backward pass keeps come back from there, and the others from a node of their own, when they are asked for.
    """

    def __init__(self, inputs: Sequence[Any], saved: Sequence[int], always: Collection[int]) -> None:
        self.saved = {place: k for k, place in enumerate(saved)}
        freed = {
            k: t for k, t in enumerate(inputs)
            if isinstance(t, torch.Tensor) and k not in self.saved and k not in always
            and not (t.is_leaf and t.requires_grad)
        }  # fmt: skip
        self.freed = {place: k for k, place in enumerate(freed)}
        self.others: list[Any] = [None if k in self.saved or k in freed else value for k, value in enumerate(inputs)]
        self.versions = {
            k: t._version for k, t in enumerate(self.others) if isinstance(t, torch.Tensor) and k not in always
        }
        start = torch.empty(0, device=HOST, requires_grad=True)
        with torch.enable_grad():
            self.packed = _Packed.apply(start, *freed.values()) if freed else None  # its node alone keeps nothing

    def found(self, saved: Sequence[Any]) -> list[Any]:
        again = () if self.packed is None else self.packed.grad_fn.saved_tensors
        if any(self.others[k]._version != version for k, version in self.versions.items()):
            raise RuntimeError(CHANGED)
        return [
            saved[self.saved[k]] if k in self.saved else again[self.freed[k]] if k in self.freed else other
            for k, other in enumerate(self.others)
        ]


class _Packed(torch.autograd.Function):
    """Keeps tensors as operators do."""

    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*tensors)
        return start.view_as(start)


def held(inputs: Sequence[Any], saved: Sequence[int], always: Collection[int] = ()) -> Any:
    """`inputs`, or where hooks would pack them, what finds them again. `always`: places of those kept anyway."""
    packed = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    return LetGo(inputs, saved, always) if packed else tuple(inputs)


class Replay:
    """`graph` is a captured graph's forward, `joint` what was made of it; made in the state that it was captured in.
    `numbers`: those of the pair (see there).
    `left` is told what PyTorch does instead of compiled code, and why."""

    def __init__(
        self, graph: Callable[..., Any], joint: JointGraph, left: Callable[[str, str], None],
        numbers: Sequence[int] = (), further: FurtherGradients | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.left = graph, left
        self.written = frozenset(k for k, _ in (*joint.aten.mutated, *joint.rewritten))
        self.rewritten = tuple(k for k, _ in joint.rewritten)
        self.again = self.written & {*numbers}
        self.sources = [_source(joint, position) for _, position in joint.tangents]
        outputs = {position for kind, position in filter(None, self.sources) if kind == "output"}
        whole = len(outputs) == len(self.sources) and not self.written
        self.further = further if whole else None
        self.autocast = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in AUTOCAST_DEVICES]

    def kept(self, inputs: Sequence[Any], saved: Sequence[int]) -> Any:
        """The inputs, for later. One that is given a history by the call would keep itself alive. `saved`: the places
        of those that the backward pass keeps, in this order."""
        if self.rewritten:
            inputs = [t.detach() if k in self.rewritten else t for k, t in enumerate(inputs)]
        return held(inputs, saved, self.written)

    def versions(self, inputs: Sequence[Any]) -> list[int]:
        """Of what must stay as it is until it is differentiated twice."""
        return [t._version for k, t in enumerate(inputs) if isinstance(t, torch.Tensor) and k not in self.written]

    def now(self, kept: Any, versions: list[int], saved: Sequence[Any]) -> Sequence[Any]:
        """The inputs again. Raises RuntimeError if they are gone or are not what they were; `saved`: what the backward
        pass has kept, of which the inputs come first."""
        if isinstance(kept, LetGo):
            return kept.found(saved)
        if kept is None or self.versions(kept) != versions:
            raise RuntimeError(CHANGED)
        return kept

    def compiled(self, inputs: Sequence[Any], needed: Sequence[bool], tangents: Sequence[Any]) -> list | None:
        """What `gradients` gives, by compiled code; None where there is none."""
        if self.further is None or any(map(is_batched, tangents)):
            return None
        there = [k for k, tangent in enumerate(tangents) if tangent is not None]
        wanted = tuple(k for k, is_needed in enumerate(needed) if is_needed)
        places = tuple(self.sources[k][1] for k in there)  # type: ignore[index]
        with self.as_captured():
            found = self.further.of(inputs, wanted, [tangents[k] for k in there], places)
        if found is None:
            return None
        gradients = dict(zip(wanted, found, strict=True))
        return [gradients.get(k) for k in range(len(inputs))]

    def gradients(self, inputs: Sequence[Any], needed: Sequence[bool], tangents: Sequence[Any]) -> list:
        """For each input a gradient with a history, or None. Each gets its own even if two are one tensor."""
        starts = [self.start(k, t) for k, t in enumerate(inputs)]
        given = [self.given(k, t) for k, t in enumerate(starts)]
        with self.as_captured():
            outputs = self.graph(*given)
        for k in self.again:  # which checkpointed functions write to in the pass itself
            given[k].data = inputs[k]
        pairs = [
            (self.result(source, outputs, given, tangent), tangent)
            for source, tangent in zip(self.sources, tangents, strict=True) if tangent is not None
        ]  # fmt: skip
        wanted = [k for k, is_needed in enumerate(needed) if is_needed and k not in self.rewritten]
        gradients: list = [None] * len(inputs)
        if pairs and wanted:
            found = torch.autograd.grad(
                [r for r, _ in pairs], [starts[k] for k in wanted], [t for _, t in pairs],
                create_graph=True, allow_unused=True,
            )  # fmt: skip
            for k, gradient in zip(wanted, found, strict=True):
                gradients[k] = gradient
        return gradients

    def start(self, position: int, value: Any) -> Any:
        """What the gradient is taken of: hooks on the input itself are for the pass that is under way."""
        return value.view_as(value) if isinstance(value, torch.Tensor) and position not in self.rewritten else value

    def given(self, position: int, start: Any) -> Any:
        """The input of the graph. What it writes to has other memory, and the same history if it writes without one."""
        if not isinstance(start, torch.Tensor) or position not in self.written:
            return start
        made = torch.empty_strided(start.size(), start.stride(), dtype=start.dtype, device=start.device)
        return made.copy_(start) if start.requires_grad else made.zero_()

    def result(self, source: tuple[str, int] | None, outputs: Any, given: list, tangent: torch.Tensor) -> Any:
        """The tensor whose gradient the tangent is."""
        found = None
        if source is not None:
            kind, position = source
            found = given[position] if kind == "input" else outputs[position]
            found = found._base if kind == "base" else found
        if found is None or found.shape != tangent.shape or found.dtype is not tangent.dtype:
            raise RuntimeError(
                "a compiled function that returns only parts of a tensor, taken in a way that leaves no trace of the "
                "whole, cannot be differentiated twice; leave it out of dovetail.compile, or use backend='eager' for it"
            )
        return found

    @contextlib.contextmanager
    def as_captured(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(True))
            for device, enabled, dtype in self.autocast:
                if enabled or torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, dtype, enabled))
            yield


def _source(joint: JointGraph, position: int) -> tuple[str, int] | None:
    """Where a replay finds the result at `position`: the new value of an input, an output, or what it is a view of."""
    for k, result in joint.rewritten:
        if result == position:
            return "input", k
    parts = [(k, r) for k, r in enumerate(joint.aten.returned) if r.origin == "result" and r.value == position]
    for k, returned in parts:
        if not returned.steps or [step.operator for step in returned.steps] == [torch.ops.aten.alias.default]:
            return "output", k
    return next((("base", k) for k, returned in parts if _is_view(returned)), None)


def _is_view(returned: Returned) -> bool:
    """Does the engine know what it is a view of?"""
    return all(step.operator not in (DATA, torch.ops.aten.detach.default) for step in returned.steps)


# ---------------------------------------------------------------- many gradients at once

_functorch = torch._C._functorch


def is_batched(gradient: Any) -> bool:
    """Does it stand for a batch of gradients?"""
    return gradient is not None and (
        _functorch.is_legacy_batchedtensor(gradient) or _functorch.is_batchedtensor(gradient)
    )


def one_by_one(backward: Callable[[list], Sequence[Any]], gradients: Sequence[Any]) -> tuple:
    """`backward` of each element of the innermost batch; what it gives is batched as the gradients were.

    So they come with `is_grads_batched`, in a vectorized Jacobian. Kernels have no address for a batched tensor.
    PyTorch's own rules for batches would do for the recorded operators, but not for the layouts that compiled code
    chooses: that of group norm's backward reads one layout as another.
    """
    legacy = any(g is not None and _functorch.is_legacy_batchedtensor(g) for g in gradients)
    level = _legacy_level() if legacy else max(map(_functorch.maybe_get_level, filter(is_batched, gradients)))
    split = _without_legacy_batch if legacy else _without_batch
    parts = [split(g, level) if is_batched(g) else None for g in gradients]
    size = next(len(p) for p in parts if p is not None)
    found = []
    for k in range(size):  # never 0: PyTorch refuses that
        given = [g if p is None else p[k] for g, p in zip(gradients, parts)]
        found.append(one_by_one(backward, given) if any(map(is_batched, given)) else backward(given))
    join = torch._add_batch_dim if legacy else _functorch._add_batch_dim
    return tuple(None if each[0] is None else join(torch.stack(each), 0, level) for each in zip(*found))


def _without_batch(gradient: torch.Tensor, level: int) -> torch.Tensor | None:
    """The elements along the first dimension; None if it is no batch at this level."""
    value, place = _functorch._unwrap_batched(gradient, level)
    return None if place is None else value.movedim(place, 0)


def _without_legacy_batch(gradient: torch.Tensor, level: int) -> torch.Tensor:
    return torch._remove_batch_dim(gradient, level, 1, 0)


def _legacy_level() -> int:
    """Of the innermost batch that the engine's own kind of batching has open."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return level

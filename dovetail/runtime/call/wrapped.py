"""Calls a program of plain tensors with tensors that are made of them, and makes such tensors of its results.

Autograd sees the tensors themselves: the function below is one node of PyTorch's graph between them, and what flows
through it are gradients of the classes that eager would give. What a wrapper's own operators write below does not
count as a change of its parts, so it is the wrappers that are saved for the backward pass.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from dovetail.errors import InternalError
from dovetail.ir.aten import (
    RAGGED,
    Apart,
    Beside,
    JointGraph,
    Own,
    Pair,
    Tangent,
    Template,
    Whole,
    WrapperPart,
    parts_of,
)
from dovetail.ir.checks import CheckFailed
from dovetail.ops.fake.wrapped import handles_operators, is_wrapper, rebuilt, same_context
from dovetail.runtime.call import outer_checkpoints
from dovetail.runtime.call.autograd import CompiledPair, Layouts, Passing, again, forget, partly_of, runner, spare_hooks
from dovetail.runtime.call.double_backward import Replay, held
from dovetail.runtime.call.making import Take, filled, making_all, taking
from dovetail.runtime.call.overlap import OVERLAPS, Overlap
from dovetail.runtime.call.parameter_parts import note_parts

Call = Callable[..., Any]
_ADVANCE = torch._C._increment_version
_SET = torch._C._autograd._unsafe_set_version_counter


def put_together(
    call: Call, eager: Call, apart: Apart, overlap: Overlap | None, left: Callable[[str, str], None]
) -> Call:
    """A callable of the captured graph's inputs. `eager` runs the graph: where the inputs' parts share memory that is
    written to, of which `left` is told, or an index turns out to be out of bounds."""
    take, rounds = taking(apart.inputs), [[k for k, n in apart.advanced if n > r] for r in range(_most(apart.advanced))]
    called = False

    def calling(*given: Any) -> Any:
        nonlocal called
        if not called:  # in the first call a recorder learns which of its inputs are parameters
            note_parts(given)
            called = True
        parts = take(given)
        if overlap is not None and overlap.found(parts):
            left("a call", OVERLAPS)
            return eager(*given)
        try:
            found = call(given, parts)
        except CheckFailed:
            return eager(*given)
        for places in rounds:
            _ADVANCE([given[k] for k in places])
        for k, version in apart.counted:
            _SET((found[k],), (version,))
        return found

    return calling


def _most(advanced: Sequence[tuple[int, int]]) -> int:
    return max((n for _, n in advanced), default=0)


def inference(call: Call, made: Call, apart: Apart) -> Call:
    """`call` gives results, of which `made` makes the parts of the outputs."""
    outputs = making_all(apart.outputs)

    def calling(given: Sequence[Any], parts: list) -> Any:
        return tuple(outputs(made(parts, call(*parts))))

    return calling


# ---------------------------------------------------------------- gradients


class Again(Replay):
    """The captured graph once more, on the tensors themselves."""

    def __init__(self, graph: Call, apart: Apart, left: Callable[[str, str], None]) -> None:
        super().__init__(graph, _joint(apart), left)
        self.written = frozenset()
        self.sources = [("output", tangent.output) for tangent in apart.tangents]

    def start(self, position: int, value: Any) -> Any:
        return _Same.apply(value) if is_wrapper(value) and value.requires_grad else super().start(position, value)


class _Same(torch.autograd.Function):
    """Another tensor made of the same, without asking its class for an operator."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Any:
        return rebuilt(tensor, lambda part: part)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def differentiable(pair: Pair, compiled: CompiledPair, made: Call, apart: Apart, exposed: Sequence[int]) -> Call:
    """The same as `inference` with a history, `compiled` being of the plain tensors. `exposed`: outputs made of others
    whose memory the backward pass relies on."""
    apply = _function(pair, compiled, made, apart, exposed).apply
    never = [k for k, template in enumerate(apart.gradients) if template is None]

    def calling(given: Sequence[Any], parts: list) -> Any:
        inputs = list(given)
        for k in never:  # the engine must not go on to where an input without a gradient came from
            if getattr(inputs[k], "requires_grad", False):
                inputs[k] = inputs[k].detach()
        return apply(*inputs, parts)

    return calling


def _joint(apart: Apart) -> JointGraph:
    assert isinstance(apart.program, JointGraph)
    return apart.program


def no_partial(there: int) -> Any:
    raise InternalError("runtime", "part of a backward pass is not run by the compiled program here")


def depends(pair: Pair, apart: Apart) -> list[int]:
    """For each input the outputs with a history that its gradient is computed from, as bits."""
    first, bits = 0, []
    for tangent in apart.tangents:
        bits.append(((1 << len(tangent.given)) - 1) << first)
        first += len(tangent.given)
    parts = [functools.reduce(operator.or_, (pair.depends[p] for p in parts_of(g)), 0) for g in apart.gradients]
    return [sum(1 << k for k, mask in enumerate(bits) if part & mask) for part in parts]


class _Saved:
    """The inputs that a backward pass is told, at `kept`."""

    def __init__(self, pair: Pair, apart: Apart) -> None:
        owners = [k for k, template in enumerate(apart.inputs) for _ in parts_of(template)]
        self.kept = tuple(dict.fromkeys(owners[k] for k in (*pair.kept, *own_parts(apart.gradients))))
        templates = [apart.inputs[k] for k in self.kept]
        self.take, self.count = taking(templates), len(templates)
        self.places = [k for template in templates for k in parts_of(template)]

    def parts(self, saved: Sequence[Any]) -> dict[int, Any]:
        """What they are made of, by its places among the parts of all inputs."""
        return dict(zip(self.places, self.take(saved[: self.count]), strict=True))


def _function(pair: Pair, compiled: CompiledPair, made: Call, apart: Apart, exposed: Sequence[int]) -> Any:
    joint = _joint(apart)
    saving = _Saved(pair, apart)
    kept = saving.kept
    outputs_of, gradients_of = making_all(apart.outputs), making_all(apart.gradients)
    tangents_of = [(tangent, taking([tangent.template])) for tangent in apart.tangents]
    count, last = joint.results, -pair.sizes or None
    every, history = (1 << len(joint.tangents)) - 1, {tangent.output for tangent in apart.tangents}
    layouts, run = Layouts(joint, pair), runner(compiled, every)
    reach = depends(pair, apart)
    partly = partly_of(reach)

    class CompiledFunction(Passing):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            *inputs, parts = given
            state = compiled.state()
            found = compiled.forward(*parts)
            outputs = outputs_of(made(parts, found[:count]))
            outer_checkpoints.compare(pair.kept_names)
            ctx.save_for_backward(*[inputs[k] for k in kept], *[outputs[k] for k in exposed], *found[count:last])
            plain = [t for k, t in enumerate(outputs) if k not in history and isinstance(t, torch.Tensor)]
            ctx.mark_non_differentiable(*plain)
            ctx.set_materialize_grads(False)
            ctx.numbers = [parts[k] for k in pair.numbers] + list(found[last:] if last else ())
            ctx.layouts = layouts.now(found)
            ctx.partly = [(k, weakref.ref(inputs[k])) for k in partly]
            if compiled.replay is not None:
                ctx.inputs, ctx.versions, ctx.state = held(inputs, kept), compiled.replay.versions(inputs), state
            return tuple(outputs)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            given = [gradients[tangent.output] for tangent in apart.tangents]
            if all(g is None for g in given):
                return (None,) * (len(reach) + 1)
            there = sum(1 << k for k, gradient in enumerate(given) if gradient is not None)
            spare_hooks(ctx.partly, there, reach)
            tangents = _tangents(tangents_of, given)
            if torch.is_grad_enabled() or tangents is None:  # which operators run depends on what there is
                return *again(ctx, compiled.replay, given, compiled.once), None
            saved = ctx.saved_tensors
            known = saving.parts(saved)
            box = [*(known[k] for k in pair.kept), *saved[len(kept) + len(exposed) :]]
            if box and not torch._C._autograd._get_current_graph_task_keep_graph():
                forget(ctx)
            found = run(ctx, box, tangents, every)
            return *gradients_of(found, known), None

    return CompiledFunction


def own_parts(templates: Iterable[Template | None]) -> Iterator[int]:
    """The parts of inputs that gradients are made of."""
    for template in templates:
        if isinstance(template, Whole):
            yield from own_parts(template.parts)
        elif isinstance(template, Own):
            yield template.index


def _tangents(expected: Sequence[tuple[Tangent, Take]], given: Sequence[Any]) -> list | None:
    """What the backward program takes; None where there is no gradient, or one that is not made as was expected."""
    found: list = []
    for (tangent, take), gradient in zip(expected, given, strict=True):
        if gradient is None:
            return None
        if not is_made_as(tangent.template, gradient):
            gradient = _dense(gradient)
            if not is_made_as(tangent.template, gradient):
                return None
        parts = take([gradient])
        if not all(map(_fits, parts, tangent.facts)):
            return None
        found += [parts[k] for k in tangent.given]
    return found


def _dense(gradient: Any) -> Any:
    """What `sum` gives is one element everywhere: strides of nothing, which some classes keep in their context."""
    expanded = is_wrapper(gradient) and gradient.layout is torch.strided and 0 in gradient.stride()
    return gradient.contiguous() if expanded else gradient


def _fits(part: Any, facts: Any) -> bool:
    shape, dtype, device = facts
    return (shape is None or part.shape == shape) and part.dtype is dtype and part.device == device


def is_made_as(template: Template, tensor: Any) -> bool:
    if isinstance(template, WrapperPart):
        return not handles_operators(type(tensor))
    if not isinstance(template, Whole):
        return isinstance(template, Beside) and tensor is template.value
    if type(tensor) is not template.cls or tensor.is_conj() or tensor.is_neg():
        return False
    names, context = tensor.__tensor_flatten__()
    if tuple(names) != template.names or not same_context(template.cls, template.context, context):
        return False
    parts = [getattr(tensor, name) for name in names]
    expected = filled(template.size, parts, torch.Tensor.size)
    same = all(n in (RAGGED, found) for n, found in zip(expected, tensor.size(), strict=True))
    return same and all(map(is_made_as, template.parts, parts))

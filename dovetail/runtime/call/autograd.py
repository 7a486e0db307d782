"""A compiled forward and backward as one differentiable callable.

`torch.autograd.Function` ties them together: hooks, accumulation, `retain_graph` and `torch.autograd.grad` work as on
any operator. A backward pass that is itself to be differentiated runs the captured graph again (`double_backward.py`)
and leaves the rest to PyTorch.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable, Sequence, Set
from typing import Any

import torch

from dovetail.errors import KernelFault
from dovetail.ir.aten import JointGraph, NoPartial, Pair
from dovetail.ir.devices import HOST, traits
from dovetail.ir.records import dataclass
from dovetail.ops.fake.rules.layout import contiguous
from dovetail.ops.fake.symbolic.size_questions import all_same
from dovetail.ops.fake.wrapped import handles_operators
from dovetail.runtime.call import outer_checkpoints
from dovetail.runtime.call.double_backward import LetGo, Replay, is_batched, one_by_one
from dovetail.runtime.call.hook_watch import refuse

Call = Callable[..., Any]
Backward = Callable[[list], Sequence[Any]]
without_autocast = torch._C._DisableAutocast  # casts are part of the graphs


def unheard(stage: str, error: Exception, inputs: Sequence[Any]) -> None:
    """What `CompiledPair.failed` does where nobody decides: the error leaves as it is."""
    raise error


@dataclass(frozen=True)
class CompiledPair:
    """`forward` takes the inputs and gives results and saved values; `backward` takes a list of saved values,
    tangents and numbers, which it empties, and gives gradients. `partial` gives another `backward` for some of the
    tangents, told by bits, and whether it takes anything in the place of the others. `replay` does what `forward` does
    in eager; None if that is impossible later, for the reason `once`. `random`: the devices on which it draws random
    numbers. `failed` is told when the backward program has raised and eager has not: it raises or returns.
    """

    forward: Call
    backward: Backward
    partial: Callable[[int], tuple[Backward, bool]]
    replay: Replay | None
    random: frozenset[torch.device] = frozenset()
    once: str = ""
    failed: Callable[[str, Exception, Sequence[Any]], None] = unheard

    def state(self) -> dict[torch.device, torch.Tensor]:
        """Of random numbers, where `replay` is to draw the same ones."""
        return _random_states(self.random) if self.replay is not None else {}


def without_gradient(joint: JointGraph, pair: Pair) -> tuple[int, ...]:
    """The inputs that require a gradient, of which there is none."""
    inputs = [n.meta["val"] for n in pair.forward.graph.nodes if n.op == "placeholder"][: joint.inputs]
    return tuple(k for k, v in enumerate(inputs) if getattr(v, "requires_grad", False) and not pair.depends[k])


def minds(given: Sequence[torch.Tensor], becoming: Sequence[torch.Tensor]) -> bool:
    """Has an input hooks, or a history, that a backward pass from some of the results must not run; or keeps one its
    gradient, though the gradient of what it becomes stays inside?

    The pair is one node of PyTorch's graph: the engine goes from any result to every input, without a gradient to some.
    """
    return any(t._backward_hooks for t in given) or _history_minds(given) or any(t.retains_grad for t in becoming)


def partly_of(depends: Sequence[int]) -> tuple[int, ...]:
    """The inputs that some results were computed from, and others were not."""
    every = functools.reduce(operator.or_, depends, 0)
    return tuple(k for k, bits in enumerate(depends) if bits not in (0, every))


def _history_minds(tensors: Sequence[torch.Tensor]) -> bool:
    """Is there a node behind one of these that notices a visit without a gradient? PyTorch's own do nothing then.

    A user's Function gets zeros; what has no derivative raises.
    """
    stack = [t.grad_fn for t in tensors if t.grad_fn is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        function = getattr(node, "_forward_cls", None)
        if function is not None and not issubclass(function, Passing) or type(node).__name__ in _RAISING:
            return True
        before = {n for n, _ in node.next_functions if n is not None} - seen
        seen |= before
        stack += before
    return False


#: PyTorch's nodes that stand for a derivative which there is none of.
_RAISING = frozenset(("NotImplemented", "Error"))


class Passing(torch.autograd.Function):
    """One whose backward does nothing without a gradient."""


# ---------------------------------------------------------------- the function


def differentiable(joint: JointGraph, pair: Pair, compiled: CompiledPair) -> Call:
    """A callable of the captured graph's inputs that gives its results, one node of PyTorch's graph."""
    layouts, proven = Layouts(joint, pair), set[int]()
    run = runner(compiled, layouts.every)

    def computed(ctx: Any, box: list, given: list, there: int, kept: EagerPass | None) -> tuple:
        compute = lambda: run(ctx, box, given, there)
        found = compute() if kept is None else _first(compute, kept, compiled.failed, proven, there)
        return found if there == layouts.every else reached(found, there, pair.depends)

    class CompiledFunction(Passing):
        forward = staticmethod(forward_of(joint, pair, compiled, layouts))
        backward = staticmethod(backward_of(pair, compiled, layouts, proven, computed))

    apply: Call = CompiledFunction.apply
    return apply


def forward_of(joint: JointGraph, pair: Pair, compiled: CompiledPair, layouts: Layouts) -> Call:
    """What the node does with the captured graph's inputs."""
    count, kept, numbers = joint.results, pair.kept, pair.numbers
    without = [k for k in range(count) if k not in layouts.places]
    last = -pair.sizes or None
    partly = partly_of(pair.depends)
    run, replay = compiled.forward, compiled.replay

    def forward(ctx: Any, *inputs: Any) -> Any:
        state = compiled.state()
        found = run(*inputs)
        results = found[:count]
        outer_checkpoints.compare(pair.kept_names)
        ctx.save_for_backward(*[inputs[k] for k in kept], *found[count:last])
        ctx.mark_non_differentiable(*[results[k] for k in without if isinstance(results[k], torch.Tensor)])
        ctx.set_materialize_grads(False)
        ctx.numbers = [*[inputs[k] for k in numbers], *(found[last:] if last else ())]
        ctx.layouts = layouts.now(results)
        ctx.watched = []
        ctx.partly = [(k, weakref.ref(inputs[k])) for k in partly]
        if replay is not None:
            ctx.inputs, ctx.versions, ctx.state = replay.kept(inputs, kept), replay.versions(inputs), state
        return results

    return forward


def backward_of(
    pair: Pair, compiled: CompiledPair, layouts: Layouts, proven: Set[int], computed: Call,
    needed: Sequence[bool] | None = None,
) -> Call:  # fmt: skip
    """What the node does with gradients of the results: it gives those of the inputs, as `computed` does where the
    program computes them. `proven`: combinations of tangents that it has done so for; else it is told what the pass can
    be made again from. `needed`: the inputs that want gradients, unless they are those of the node.
    """
    places, replay = layouts.places, compiled.replay

    def backward(ctx: Any, *gradients: Any) -> Any:
        given = [gradients[k] for k in places]
        if all(g is None for g in given):
            return (None,) * len(pair.depends)
        there = sum(1 << k for k, gradient in enumerate(given) if gradient is not None)
        spare_hooks(ctx.partly, there, pair.depends)
        refuse(ctx.watched, gradients)
        if torch.is_grad_enabled() or not all(map(_is_plain, given)):
            return again(ctx, replay, given, compiled.once, needed)
        box = list(ctx.saved_tensors)
        kept = EagerPass(ctx, replay, given, box, needed) if there not in proven and replay is not None else None
        if box and not torch._C._autograd._get_current_graph_task_keep_graph():
            forget(ctx)
        return computed(ctx, box, given, there, kept)

    return backward


def _is_plain(gradient: Any) -> bool:
    """Has it elements of its own? What handles operators itself may be made of anything."""
    return gradient is None or type(gradient) is torch.Tensor or not handles_operators(type(gradient))


class Layouts:
    """How the backward program wants each tangent laid out: `fixed`, or None where that depends on the call.

    `places` are the results that the tangents belong to.
    """

    def __init__(self, joint: JointGraph, pair: Pair) -> None:
        self.places = [position for _, position in joint.tangents]
        self.every = (1 << len(self.places)) - 1
        layouts = [_layout(pair, name) for name, _ in joint.tangents]
        self.fixed = None if any(map(_changes, layouts)) else layouts
        self.all = [(layout, all_same(layout[1], contiguous(layout[0]))) for layout in layouts]

    def now(self, results: Sequence[Any]) -> Sequence[Any]:
        if self.fixed is not None:
            return self.fixed
        return [_now(*layout, results[k]) for layout, k in zip(self.all, self.places, strict=True)]


def runner(compiled: CompiledPair, every: int) -> Callable[..., tuple]:
    """Runs the backward program for some tangents. Each call's context has their layouts."""
    run = started(compiled, every)

    def computed(ctx: Any, box: list, given: list, there: int) -> tuple:
        with without_autocast():
            if any(map(is_batched, given)):
                return one_by_one(lambda each: tuple(run(ctx, list(box), each, there)), given)
            return tuple(run(ctx, box, given, there))

    return computed


def started(compiled: CompiledPair, every: int) -> Callable[..., Any]:
    """Calls the backward program for some tangents; gives what that does."""
    partial = functools.cache(compiled.partial)

    def run(ctx: Any, box: list, given: list, there: int) -> Any:
        call, takes_all = (compiled.backward, True) if there == every else partial(there)
        box += [_laid_out(g, *at) for g, at in zip(given, ctx.layouts, strict=True) if takes_all or g is not None]
        box += ctx.numbers
        return call(box)

    return run


def _first(
    compute: Callable[[], tuple], kept: EagerPass, failed: Callable[..., None], proven: set[int], there: int
) -> tuple:
    """A backward pass for tangents that it has not been made for yet: where it fails, eager makes it again.

    Later ones let go of what eager would need, as eager does.
    """
    try:
        found = compute()
        proven.add(there)
        return found
    except Exception as error:
        failure = error
    return kept.instead(failure, failed)


def reached(found: Sequence[Any], there: int, depends: Sequence[int]) -> tuple:
    """No gradient for inputs that only results without one were computed from."""
    return tuple(g if bits & there else None for g, bits in zip(found, depends, strict=True))


def spare_hooks(inputs: Sequence[tuple[int, weakref.ref[torch.Tensor]]], there: int, depends: Sequence[int]) -> None:
    """The engine visits those inputs too, and calls their hooks."""
    for k, reference in inputs:
        tensor = reference()
        if tensor is not None and tensor._backward_hooks and not depends[k] & there:
            for number, hook in tensor._backward_hooks.items():
                tensor._backward_hooks[number] = hook if isinstance(hook, _OnlyGradients) else _OnlyGradients(hook)


@dataclass
class _OnlyGradients:
    """A hook of an input, left out where PyTorch's engine visits the input without a gradient."""

    hook: Callable[[torch.Tensor], Any]

    def __call__(self, gradient: torch.Tensor | None) -> Any:
        return None if gradient is None else self.hook(gradient)


def _layout(pair: Pair, name: str) -> tuple:
    """Of the tangent by that name: what the backward kernels were generated for."""
    fake = next(n for n in pair.backward.graph.nodes if n.name == name).meta["val"]
    return fake.size(), fake.stride(), fake.dtype, fake.device


def _changes(layout: tuple) -> bool:
    return any(isinstance(n, torch.SymInt) for n in (*layout[0], *layout[1]))


def _now(layout: tuple, is_contiguous: bool, result: torch.Tensor) -> tuple:
    """The layout of a tangent whose sizes may be symbolic, in the call that gave `result`."""
    _sizes, _strides, dtype, device = layout
    if not _changes(layout):
        return layout
    return result.size(), contiguous(result.shape) if is_contiguous else result.stride(), dtype, device


def _laid_out(gradient: Any, sizes: Any, strides: Any, dtype: Any, device: Any) -> torch.Tensor:
    """The gradient with the layout that kernels were generated for; zeros in the place of none."""
    if gradient is None:
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device).zero_()
    if gradient.stride() == strides and not gradient.is_conj() and not gradient.is_neg():
        return gradient
    return torch.empty_strided(sizes, strides, dtype=dtype, device=device).copy_(gradient)


# ---------------------------------------------------------------- gradients of gradients


def again(ctx: Any, replay: Replay | None, given: list, once: str, needed: Sequence[bool] | None = None) -> tuple:
    """Gradients that can be differentiated in turn, or of gradients that the backward program does not take. `needed`:
    see `backward_of`."""
    saved = ctx.saved_tensors  # raises if the graph is gone
    if replay is None:
        raise RuntimeError(
            f"a compiled function that {once} cannot be differentiated twice; leave it out of dovetail.compile, or use "
            "backend='eager' for it"
        )
    twice = torch.is_grad_enabled()
    kept = EagerPass(ctx, replay, given, saved, needed)
    inputs = kept.inputs()
    found: Any = replay.compiled(inputs, kept.needed, given) if twice and not kept.state else None
    if found is None:
        replay.left("a backward pass", "it is to be differentiated in turn" if twice else "it is given unusual tensors")
        found = kept.made(inputs) if twice else kept.gradients(inputs)
    if saved and not torch._C._autograd._get_current_graph_task_keep_graph():
        forget(ctx)
    return tuple(found)


class EagerPass:
    """What a backward pass can be made again from, in eager."""

    def __init__(
        self, ctx: Any, replay: Replay, given: list, saved: Sequence[Any], needed: Sequence[bool] | None
    ) -> None:  # fmt: skip
        self.replay, self.given, self.needed = replay, given, needed or ctx.needs_input_grad
        self.kept, self.versions, self.state = ctx.inputs, ctx.versions, ctx.state
        self.saved = tuple(saved[: len(ctx.inputs.saved)]) if isinstance(ctx.inputs, LetGo) else ()

    def inputs(self) -> Sequence[Any]:
        """Raises RuntimeError if they are not what they were."""
        return self.replay.now(self.kept, self.versions, self.saved)

    def made(self, inputs: Sequence[Any]) -> list:
        """The gradients, with a history."""
        devices = [device for device in self.state if not traits(device).host]
        kind = next((device.type for device in devices), HOST.type)
        with torch.random.fork_rng(devices, enabled=bool(self.state), device_type=kind):
            for device, state in self.state.items():
                if traits(device).host:
                    torch.set_rng_state(state)
                else:
                    torch.get_device_module(device).set_rng_state(state, device)
            return self.replay.gradients(inputs, self.needed, self.given)

    def gradients(self, inputs: Sequence[Any]) -> tuple:
        """The gradients alone. One tensor stays one: the engine keeps what nobody else has, and adds to it in place."""
        with torch.enable_grad():
            found = self.made(inputs)
        alone = {id(g): g.detach() if g is not None and g.requires_grad else g for g in found}
        return tuple(alone[id(g)] for g in found)

    def instead(self, failure: Exception, failed: Callable[..., None]) -> tuple:
        """The gradients, where the program has raised `failure`: that leaves if they cannot be made."""
        try:
            inputs = self.inputs()
        except RuntimeError:
            raise failure from None
        if isinstance(failure, KernelFault):
            raise failure
        gradients = self.gradients(inputs)
        if isinstance(failure, NoPartial):
            self.replay.left("a backward pass", f"only some results are differentiated, and {failure}")
        else:
            failed("backward", failure, inputs)
        return gradients


def _random_states(devices: frozenset[torch.device]) -> dict[torch.device, torch.Tensor]:
    """What random numbers are drawn from. While a CUDA graph is recorded, a device has no state to be kept."""
    recording = not all(traits(d).host for d in devices) and torch.cuda.is_current_stream_capturing()
    known = [d for d in devices if traits(d).host or traits(d).draws and not recording]
    return {d: torch.get_rng_state() if traits(d).host else torch.get_device_module(d).get_rng_state(d) for d in known}


def forget(ctx: Any) -> None:
    """Let go of everything that was kept for a backward pass."""
    ctx.maybe_clear_saved_tensors()
    ctx.inputs = None

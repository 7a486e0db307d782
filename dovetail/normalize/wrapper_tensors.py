"""Tensors that are made of others are taken apart: the graph computes with what they are made of.

    def f(t): return t.sin()            t a TwoTensor of a and b
    ->  %sin = aten.sin(%t_a);  %sin_1 = aten.sin(%t_b);  output 0: TwoTensor(%sin, %sin_1)

The captured graph runs on tensors of the classes, made of the graph's inputs. PyTorch's engine sees these tensors, so
what it differentiates are operators on them; what their `__torch_dispatch__` calls below is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.fx
from torch.autograd.function import BackwardCFunction

from dovetail.ir.aten import (
    RAGGED,
    Apart,
    AtenGraph,
    Beside,
    JointGraph,
    KeptWhole,
    Own,
    Returned,
    SizeOf,
    Tangent,
    Template,
    Whole,
    WrapperPart,
    subprograms,
)
from dovetail.normalize.joint import enter, tangent_of
from dovetail.normalize.normalize import run_graph
from dovetail.normalize.outputs import GraphEnding, Results, flat, recounted
from dovetail.normalize.passes import simplify, simplify_joint
from dovetail.normalize.recording.aliases import Handle
from dovetail.normalize.recording.autograd_history import behind, ways
from dovetail.normalize.recording.control_flow import left_to_engine
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.ops.calls import higher_order
from dovetail.ops.calls.autograd_calls import needs_autograd
from dovetail.ops.fake import to_fake
from dovetail.ops.fake.rules.layout import overlaps_itself
from dovetail.ops.fake.sharding import out_of_sight
from dovetail.ops.fake.symbolic.size_questions import same
from dovetail.ops.fake.wrapped import copied, inner, is_wrapper, rebuilt, same_context
from dovetail.options import Options


def take_apart(graph_module: torch.fx.GraphModule, fakes: Sequence[Any], options: Options) -> Apart:
    """Raises KeptWhole where what callers see of the tensors themselves would be other than in eager."""
    grad = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(grad), torch._C.DisableTorchFunctionSubclass():
        with torch.autograd.set_multithreading_enabled(False), out_of_sight():
            apart = _Taking(graph_module, fakes, needs_autograd(fakes)).apart()
    if next(subprograms(apart.aten), None) is not None:
        raise KeptWhole("it has branches or loops")
    if isinstance(apart.program, AtenGraph):
        simplify(apart.program, options)
    else:
        simplify_joint(apart.program, options)
    return apart


_SET = torch._C._autograd._unsafe_set_version_counter
_OF_USERS = higher_order.Recorded._backward_cls


class _Given:
    """An input while the graph runs: the tensor, what it was made of, and what its counter said."""

    def __init__(self, tensor: Any, template: Template, leaf: Any) -> None:
        self.tensor, self.template, self.leaf = tensor, template, leaf
        self.parts = inner(tensor)
        self.version = tensor._version if is_wrapper(tensor) and not tensor.is_inference() else 0

    def check(self) -> None:
        """The same parts and context as before, and no history but the one that it had."""
        if not is_wrapper(self.tensor):
            return
        now = template_of(self.tensor, [])
        if list(map(id, inner(self.tensor))) != list(map(id, self.parts)) or not _same(now, self.template):
            raise KeptWhole("an input is made of other tensors afterwards")
        if self.tensor.requires_grad and (self.leaf is None or self.written):
            raise KeptWhole("an input with a history is written to")

    @property
    def written(self) -> int:
        return self.tensor._version - self.version if is_wrapper(self.tensor) and not self.tensor.is_inference() else 0


class _Parts(Results):
    def origin(self, handle: Handle, tensor: Any, shared: set[int], outputs: dict[int, int]) -> Returned:
        """What an `autograd.Function` gives, as `DTensor.to_local()` does, has its history from that. Eager refuses to
        write to it if it is a view of what the function has made; so nobody can tell it from a tensor of its own."""
        own = isinstance(getattr(tensor, "grad_fn", None), BackwardCFunction) and not overlaps_itself(tensor)
        if own and handle.base.fresh and id(handle.base) not in shared:
            return Returned("result", self.result(handle, tensor))
        return super().origin(handle, tensor, shared, outputs)


class _Taking:
    def __init__(self, graph_module: torch.fx.GraphModule, fakes: Sequence[Any], differentiated: bool) -> None:
        self.graph_module, self.differentiated = graph_module, differentiated
        self.recorder = recorder = AtenRecorder()
        if differentiated and left_to_engine(graph_module):
            raise KeptWhole("PyTorch's engine goes through branches as they were taken, and runs users' own")
        names = [n.name for n in graph_module.graph.nodes if n.op == "placeholder"]
        with recorder:
            self.given = [self.enter(name, fake) for name, fake in zip(names, fakes, strict=True)]
            self.count = len(recorder.inputs)
            found = run_graph(graph_module, [g.tensor for g in self.given], recorder)
        recorder.stack = None
        self.outputs = flat(found)
        for given in self.given:
            given.check()

    def enter(self, name: str, fake: Any) -> _Given:
        """An input, its parts placeholders of the graph."""
        first = len(self.recorder.inputs)
        wanted = isinstance(fake, torch.Tensor) and fake.requires_grad and self.differentiated
        if not is_wrapper(fake):
            plain = fake if wanted or not isinstance(fake, torch.Tensor) else to_fake(fake, leaf=False)
            leaf = self.recorder.placeholder(name, plain)
            return _Given(enter(self.recorder, leaf) if wanted else leaf, WrapperPart(first), leaf if wanted else None)
        parts: list = []

        def placeholder(part: Any) -> Any:
            if part.requires_grad:
                raise KeptWhole("what an input is made of requires gradients itself")
            parts.append(self.recorder.placeholder(f"{name}_{len(parts)}", part))
            return parts[-1]

        made = rebuilt(fake, placeholder)
        if made.grad_fn is not None or list(map(id, inner(made))) != list(map(id, parts)):
            raise KeptWhole("an input is not made of what its class was given")
        if made.requires_grad is not wanted:  # some classes keep it in their context
            made.requires_grad_(wanted)
        return _Given(made, template_of(made, [None] * first), made if wanted else None)

    # ------------------------------------------------------------ results

    def apart(self) -> Apart:
        self.check_outputs()
        parts: list = []
        outputs = tuple(template_of(value, parts) for value in self.outputs)
        results = _Parts(self.recorder)
        results.take(parts)
        mutated = results.ending.mutated()
        if any(self.recorder.inputs[k].tensor.requires_grad for k, _ in mutated):
            raise KeptWhole("an input with a history is written to")
        counts = [(k, t._version) for k, t in enumerate(self.outputs) if is_wrapper(t) and not t.is_inference()]
        advanced = tuple((k, given.written) for k, given in enumerate(self.given) if given.written)
        common = tuple(g.template for g in self.given), outputs, advanced, tuple(c for c in counts if c[1])

        def graph(viewed: Any) -> AtenGraph:
            return AtenGraph(
                self.recorder.graph, mutated, self.constants(), tuple(results.returned), viewed,
                results.counted(), recounted(self.recorder),
            )  # fmt: skip

        wanted = [k for k, t in enumerate(self.outputs) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not wanted:
            self.recorder.graph.output(tuple(results.nodes))
            return Apart(graph(results.viewed()), *common)
        for template in outputs:
            if isinstance(template, WrapperPart) and isinstance(parts[template.index], torch.Tensor):
                each = results.returned[template.index]
                if each.origin != "result" or each.steps:
                    raise KeptWhole("an output is a view")
        return self.differentiate(wanted, results, graph, common)

    def constants(self) -> dict[str, Any]:
        """What the recorder took for constants. It asks of wholes as well, with which nothing is computed then."""
        found = self.recorder.constants
        nodes = {node.name: node for node in self.recorder.graph.nodes if node.op == "placeholder"}
        for name in [name for name, value in found.items() if is_wrapper(value)]:
            if nodes[name].users:
                raise KeptWhole("it computes with a constant that is made of other tensors")
            self.recorder.graph.erase_node(nodes[name])
        return {name: value for name, value in found.items() if not is_wrapper(value)}

    def check_outputs(self) -> None:
        """What the caller may see of wrappers: which one is a view of which."""
        tensors = [t for t in self.outputs if isinstance(t, torch.Tensor)]
        given = {id(g.tensor) for g in self.given}
        if len({*map(id, tensors)} | given) != len(tensors) + len(self.given):
            raise KeptWhole("an output is an input, or another output")
        bases = [id(t._base) if t._is_view() else id(t) for t in tensors]
        for tensor, base in zip(tensors, bases, strict=True):
            if is_wrapper(tensor) and tensor._is_view() and (base in given or bases.count(base) > 1):
                raise KeptWhole("an output is a view")
        wholes = [t for t in (*tensors, *(g.tensor for g in self.given)) if is_wrapper(t) and not t.is_inference()]
        if any(_counts_for(t, wholes) for t in wholes):
            raise KeptWhole("an output shares its version with another tensor")
        self.check_looks([t for t in tensors if is_wrapper(t)])

    def check_looks(self, wholes: list) -> None:
        """What is made of outputs' parts looks as the outputs do."""
        ragged = [t for t in (*(g.tensor for g in self.given), *wholes) if _is_ragged(t)]
        if any(_same_ragged_size(a, b) and _offsets(a) is not _offsets(b) for a in ragged for b in ragged):
            raise KeptWhole("ragged sizes are equal, and their offsets are several tensors")
        for tensor in wholes:
            if not _tells_sizes(template_of(tensor, [])):
                raise KeptWhole("an output has sizes that vary otherwise than those of what it is made of")
            if tensor.is_conj() or tensor.is_neg():
                raise KeptWhole("an output is conjugated or negated lazily")

    # ------------------------------------------------------------ gradients

    def differentiate(self, wanted: list[int], results: Results, graph: Any, common: Any) -> Apart:
        recorder = self.recorder
        history = [self.outputs[k] for k in wanted]
        if any(t.grad_fn is None for t in history):
            raise KeptWhole("a result is a leaf")
        for k, by in zip(wanted, ways(dict(zip(wanted, history, strict=True)), history), strict=True):
            if by - {k}:
                raise KeptWhole("an output is computed from another one")
        self.check_history(history)
        before = set(recorder.graph.nodes)
        placed: list = []
        with recorder:
            tangents = [self.tangent(t, placed) for t in history]
            leaves = [g.leaf for g in self.given if g.leaf is not None]
            found = torch.autograd.grad(history, leaves, tangents, allow_unused=True)
        by_leaf = dict(zip(map(id, leaves), found, strict=True))
        given = [None if g.leaf is None else by_leaf[id(g.leaf)] for g in self.given]
        parts: list = []
        own = self.own()
        gradients = tuple(None if t is None else template_of(t, parts, own) for t in given)
        if not all(_tells_sizes(t) for t in gradients if t is not None):
            raise KeptWhole("a gradient has sizes that vary otherwise than those of what it is made of")
        nodes = self.gradient_nodes(parts, before)
        recorder.graph.output((*results.nodes, *nodes))
        names, told = self.used(wanted, history, tangents, results)
        if not names:
            raise KeptWhole("a result that requires gradients has no input as its source")
        backward = frozenset(n for n in recorder.graph.nodes if n not in before)
        joint = JointGraph(
            graph(frozenset()), self.count, len(results.nodes), tuple(names), (), backward,
        )  # fmt: skip
        inputs, outputs, advanced, counted = common
        return Apart(joint, inputs, outputs, advanced, counted, tuple(told), gradients)

    def own(self) -> dict[int, int]:
        """What is no number with a gradient, of what the inputs are made of: ids, and places among all parts."""
        parts = [(part, given.tensor) for given in self.given for part in given.parts]
        return {id(p): k for k, (p, whole) in enumerate(parts) if is_wrapper(whole) and not _has_gradients(whole, p)}

    def gradient_nodes(self, parts: list, before: set[Any]) -> list:
        """Each with memory of its own: the engine adds to gradients in place, and cannot see what they are made of."""
        ending, found = GraphEnding(self.recorder), []
        for part in parts:
            node = ending.owned(self.recorder.handle(part))
            if node in found or node in before:
                node = self.recorder.emit(torch.ops.aten.clone.default, node)
            found.append(node)
        return found

    def check_history(self, history: list) -> None:
        """It begins at the inputs, and no backward of the user's own is on the way."""
        known = {id(g.leaf) for g in self.given}
        for node in behind(history):
            leaf = getattr(node, "variable", None)
            if leaf is not None and id(leaf) not in known or isinstance(node, _OF_USERS):
                raise KeptWhole("a view that was made without gradients, or a user's own backward, is behind a result")

    def tangent(self, result: Any, placed: list) -> Any:
        """A gradient of the class that the result has, of the same make: a ragged one has the same offsets."""

        def part(of: Any) -> Any:
            if _is_ragged(result) and not _has_gradients(result, of):
                return of
            placed.append(tangent_of(of))
            return self.recorder.placeholder(f"tangent_{len(placed) - 1}", placed[-1])

        if not is_wrapper(result):
            return part(result)
        made = rebuilt(result, part)
        return made.requires_grad_(False) if made.requires_grad else made  # which some classes keep in their context

    def used(
        self, wanted: list[int], history: list, tangents: list, results: Results
    ) -> tuple[list[tuple[str, int]], list[Tangent]]:
        """The tangents that gradients are computed from, each with a result of its size; the others leave the graph."""
        names: list[tuple[str, int]] = []
        told = []
        for k, result, tangent in zip(wanted, history, tangents, strict=True):
            given = []
            for n, (mine, part) in enumerate(zip(inner(result), inner(tangent), strict=True)):
                if part is mine:
                    continue
                node = self.recorder.handles[id(part)].base.first
                if node.users:
                    given.append(n)
                    names.append((node.name, next((k for k, t in enumerate(results.tensors) if t is mine), 0)))
                else:
                    self.recorder.graph.erase_node(node)
            facts = tuple((_known(t.shape), t.dtype, t.device) for t in inner(tangent))
            told.append(Tangent(k, template_of(tangent, []), facts, tuple(given)))
        return names, told


def _counts_for(tensor: Any, others: list) -> bool:
    """Does its version counter count for one of the others as well?"""
    version, before = tensor._version, [t._version for t in others if t is not tensor]
    _SET((tensor,), (version + 1,))
    shared = before != [t._version for t in others if t is not tensor]
    _SET((tensor,), (version,))
    return shared


def _known(shape: Any) -> tuple[int, ...] | None:
    """None where sizes vary: the engine has seen to it that they fit the result."""
    return tuple(shape) if all(type(n) is int for n in shape) else None


def _has_gradients(whole: Any, part: Any) -> bool:
    """All but its values say where the rows of a ragged tensor lie, some by the size of an empty tensor of floats."""
    if _is_ragged(whole) and not any(part is of for of in inner(whole._values)):
        return False
    return bool(part.is_floating_point() or part.is_complex())


def template_of(value: Any, parts: list, own: Mapping[int, int] = MappingProxyType({})) -> Template:
    """How it is made of plain values, which are added to `parts`; but those in `own` stand for themselves."""
    if id(value) in own:
        return Own(own[id(value)])
    if not is_wrapper(value):
        parts.append(value)
        return WrapperPart(len(parts) - 1)
    names, context = value.__tensor_flatten__()
    made_of = [getattr(value, name) for name in names]
    below = tuple(template_of(t, parts, own) if isinstance(t, torch.Tensor) else Beside(t) for t in made_of)
    size = tuple(_told(n, made_of, torch.Tensor.size) for n in value.size())
    stride = tuple(_told(n, made_of, torch.Tensor.stride) for n in value.stride())
    return Whole(type(value), tuple(names), copied(context), size, stride, below)


def _told(size: Any, made_of: list, sizes_of: Callable[[Any], Any]) -> Any:
    """A size of a tensor, or a stride, as `Whole` has it."""
    if type(size) is int:
        return size
    if size.node.is_nested_int():
        return RAGGED
    for k, part in enumerate(made_of):
        for dim, known in enumerate(sizes_of(part) if isinstance(part, torch.Tensor) else ()):
            if same(known, size):
                return SizeOf(k, dim)
    return None


def _is_ragged(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.jagged


def _offsets(ragged: Any) -> Any:
    """PyTorch knows a ragged size by this tensor."""
    return ragged._offsets if ragged._lengths is None else ragged._lengths


def _same_ragged_size(a: Any, b: Any) -> bool:
    return bool(a.size(a._ragged_idx) == b.size(b._ragged_idx))


def _tells_sizes(template: Template) -> bool:
    if not isinstance(template, Whole):
        return True
    return None not in (*template.size, *template.stride) and all(map(_tells_sizes, template.parts))


def _same(a: Template, b: Template) -> bool:
    if isinstance(a, Beside) and isinstance(b, Beside):
        return a.value is b.value
    if not isinstance(a, Whole) or not isinstance(b, Whole):
        return isinstance(a, WrapperPart) and isinstance(b, WrapperPart)
    alike = a.cls is b.cls and a.names == b.names and same_context(a.cls, b.context, a.context)
    return alike and all(map(_same, a.parts, b.parts))

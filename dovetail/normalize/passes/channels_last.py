"""Give convolutions the memory layout that they are fastest in.

before:  %c = convolution(%x, %w, ...)              %x strides NCHW
after:   %y = clone(%x, memory_format=channels_last); %c = convolution(%y, %w, ...)

and so for the gradient and the image that a convolution_backward takes.

oneDNN computes on channels_last images without reordering them (15 to 25% faster than NCHW on an AVX-512 machine), and
what follows keeps the layout, so that one copy at the entry serves a whole network. That is so for operators of which
`ops/calls/layouts.py` says that they compute the same in any layout; every other one gets its arguments with exactly
eager's strides, by a copy, and so do outputs. Nothing is changed in a graph that looks at strides itself, nor, on the
CPU, in one whose weights outweigh its images: there oneDNN spends its time on reordering weights, and does that faster
for NCHW (ResNet-50, 2 threads: at 128 pixels 74 ms against 90, at 224 pixels 314 against 243). On a GPU, cuDNN's
kernels for half types and, where it may round products to TF32, for float32 read channels_last and would reorder images
(ResNet-50's inference on an H200: 2.8 ms against 3.6). For training in float32 and for grouped convolutions both are
tried (`image_layouts.py`), unless some are kernels of ours. Nothing is changed either where numbers are to be rounded
as eager rounds them: PyTorch's own batch norm sums channels_last images with 190 times the error (7.6e-6 of a result of
2x8x320x320 against 4.0e-8).
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph, Subprogram, output_of
from dovetail.ir.devices import traits
from dovetail.normalize.passes.escape import is_view
from dovetail.normalize.passes.image_layouts import last_is_faster
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.calls.layouts import takes_any_layout, takes_images
from dovetail.ops.fake import on_fakes
from dovetail.ops.fake.rules.layout import channels_last, contiguous, dense_order, is_one
from dovetail.ops.fake.symbolic.size_questions import all_same, hint, same
from dovetail.ops.fake.tensor import run
from dovetail.ops.lowering.convolutions import in_kernels
from dovetail.options import Options

aten = torch.ops.aten

#: Operators whose result depends on the strides of their argument.
_LOOKS_AT_STRIDES = frozenset({aten.as_strided.default, aten.as_strided_scatter.default, aten.set_.default})
#: Which arguments of an operator are images, and which is the weight.
_IMAGES: dict[Any, tuple[int, ...]] = {aten.convolution.default: (0,), aten.convolution_backward.default: (0, 1)}
_WEIGHT: dict[Any, int] = {aten.convolution.default: 1, aten.convolution_backward.default: 2}
#: Channels that oneDNN's widest instructions compute at once.
_BLOCK = 16
_TRANSPOSED: dict[Any, int] = {aten.convolution.default: 6, aten.convolution_backward.default: 7}
_GROUPS: dict[Any, int] = {aten.convolution.default: 8, aten.convolution_backward.default: 9}


def prefer_channels_last(graph: AtenGraph, options: Options) -> AtenGraph:
    """In place on the graph; returns it unchanged when no convolution would gain."""
    if options.numerics == "eager":
        return graph
    nodes = [n for n in graph.graph.nodes if n.op == "call_function"]
    looks = any(n.target in _LOOKS_AT_STRIDES or isinstance(n.target, Subprogram) for n in nodes)
    dtypes = {library: _dtypes(library) for library in ("oneDNN", "cuDNN")}
    gaining = [n for n in nodes if _gains(n, dtypes)]
    if not looks and _images_outweigh(gaining):
        if _lose(gaining, nodes):
            return graph
        _Layout(graph).apply(nodes, set(gaining))
    return graph


def _images_outweigh(convolutions: list[torch.fx.Node]) -> bool:
    """Do these convolutions read and write more elements of images than of weights, by a factor of two?"""
    forward: list = [n for n in convolutions if n.target is aten.convolution.default]
    if forward and _on_gpu(forward[0]):
        return True
    images = sum(_elements(n.args[0]) + _elements(n) for n in forward)
    weights = sum(_elements(n.args[1]) for n in forward)
    return bool(forward) and images >= 2 * weights


def _lose(gaining: list[torch.fx.Node], nodes: list[torch.fx.Node]) -> bool:
    """Is the program slower with the channels last on its GPU, though these convolutions are to gain? Not where some
    are kernels of ours, which take two to three times as long otherwise."""
    if any(map(_depthwise, gaining)):
        return False
    if _trains_in_single(gaining):
        return last_is_faster(nodes, gaining) is not True
    grouped = [n for n in gaining if n.args[_GROUPS[n.target]] != 1 and _on_gpu(n)]
    return bool(grouped) and all(last_is_faster(nodes, some) is False for some in (grouped, gaining))


def _depthwise(convolution: torch.fx.Node) -> bool:
    """Is it, or its gradient, a kernel of ours?"""
    first = _WEIGHT[convolution.target]
    stride, _, dilation = convolution.args[first + 2 : first + 5]
    image, weight = _given(convolution, first - 1), _given(convolution, first)
    groups: Any = convolution.args[_GROUPS[convolution.target]]
    return in_kernels(image, weight, stride, dilation, groups)  # type: ignore[arg-type]


def _trains_in_single(gaining: list[torch.fx.Node]) -> bool:
    return any(
        n.target is aten.convolution_backward.default and _given(n, 0).dtype is torch.float32 and _on_gpu(n)
        for n in gaining
    )


def _on_gpu(convolution: torch.fx.Node) -> bool:
    return traits(_given(convolution, 0).device).convolutions == "cuDNN"


def _elements(node: torch.fx.Node) -> int:
    return hint(node.meta["val"].numel())


def _dtypes(library: str) -> tuple[torch.dtype, ...]:
    """Of the convolutions that gain."""
    if library == "oneDNN":
        return (torch.float32,)
    halves = (torch.float16, torch.bfloat16)
    return (*halves, torch.float32) if torch.backends.cudnn.allow_tf32 else halves


def _given(node: torch.fx.Node, place: int) -> Any:
    argument: Any = node.args[place]
    return argument.meta["val"]


def _gains(node: torch.fx.Node, dtypes: dict[str, tuple[torch.dtype, ...]]) -> bool:
    """A 2-d convolution of an image that has channels and pixels to reorder."""
    if node.target not in _IMAGES or node.args[_TRANSPOSED[node.target]]:
        return False
    image = _given(node, _WEIGHT[node.target] - 1)
    if image.dim() != 4 or image.dtype not in dtypes.get(traits(image.device).convolutions, ()):
        return False
    return all(not isinstance(s, int) or s > 1 for s in image.shape[1:]) and _sound(node)


def _sound(node: torch.fx.Node) -> bool:
    """Does its library compute it right with the channels last, which eager may never ask of it?"""
    weight = _given(node, _WEIGHT[node.target])
    if node.target is not aten.convolution_backward.default or traits(weight.device).convolutions != "oneDNN":
        return True
    return sound_gradients(weight.shape, node.args[4])


def sound_gradients(weight: Any, strides: Any) -> bool:
    """Does oneDNN compute them right for images with the channels last, on every machine?

    Not those of 1x1 weights with a stride: where the last block of channels is not full, the kernel of the weight's
    gradient writes behind the memory in which it gathers pixels. `python -m tests.layouts.convolutions` tells such
    shapes apart by trying.
    """
    if all(type(s) is int and s == 1 for s in strides) or not all(is_one(n) for n in weight[2:]):
        return True
    return isinstance(weight[1], int) and weight[1] % _BLOCK == 0


def _reordered(node: torch.fx.Node) -> tuple[int, ...]:
    """The arguments that get the layout: on a GPU the weight too, which cuDNN's callers would copy one by one."""
    weight = _WEIGHT[node.target]
    images = _IMAGES[node.target]
    return (*images, weight) if _on_gpu(node) else images


class _Layout:
    """Recomputes the metadata downstream of every change."""

    def __init__(self, aten: AtenGraph) -> None:
        self.aten = aten
        self.graph = aten.graph
        self.copies: dict[torch.fx.Node, torch.fx.Node] = {}  # with the channels last
        self.restored: dict[torch.fx.Node, torch.fx.Node] = {}  # under eager's strides
        self.changed: set[torch.fx.Node] = set()

    def apply(self, nodes: list[torch.fx.Node], gaining: set[torch.fx.Node]) -> None:
        with on_fakes():
            for node in nodes:
                if node in gaining:
                    self.convolve(node)
                elif any(n in self.changed for n in node.all_input_nodes):
                    self.follow(node)
            self.restore_outputs()

    def convolve(self, node: torch.fx.Node) -> None:
        """Give a convolution its images with the channels last, and nothing else that is laid out in another way."""
        images = _reordered(node)
        for k, argument in enumerate(node.args):
            if isinstance(argument, torch.fx.Node):
                node.update_arg(k, self.image(argument, node) if k in images else self.as_eager(argument, node))
        self.refresh(node)

    def image(self, argument: torch.fx.Node, before: torch.fx.Node) -> torch.fx.Node:
        """For a convolution, to which steps over a single element say nothing."""
        there = argument.meta["val"].is_contiguous(memory_format=torch.channels_last)
        return argument if there else self.last(argument, before)

    def follow(self, node: torch.fx.Node) -> None:
        """Tell the readers of an operator that takes other layouts; give the others what they have in eager."""
        free = node.target is operator.getitem or takes_any_layout(node.target, _device(node))
        if free or node.target not in _IMAGES and self.with_images(node):
            try:
                return self.refresh(node)
            except RuntimeError:  # there is no such view
                pass
        for argument in node.all_input_nodes:
            node.replace_input_with(argument, self.as_eager(argument, node))

    def with_images(self, node: torch.fx.Node) -> bool:
        """Lay out all images alike for an operator that takes them so, where one has the channels last already."""
        if not takes_images(node.target, _device(node)):
            return False
        images = [n for n in node.all_input_nodes if n.meta["val"].dim() == 4]
        if not any(_last(n) for n in images if n in self.changed):
            return False
        for n in node.all_input_nodes:
            node.replace_input_with(n, n if _last(n) else self.last(n, node) if n in images else self.as_eager(n, node))
        return True

    def last(self, image: torch.fx.Node, before: torch.fx.Node) -> torch.fx.Node:
        """A copy of `image` with the channels last, made once."""
        made = self.copies.get(image)
        if made is None:
            write = GraphWriter(self.graph, before)
            made = self.copies[image] = write.call(aten.clone.default, image, memory_format=torch.channels_last)
            made.meta["eager"] = _eager(image)
        return made

    def refresh(self, node: torch.fx.Node) -> None:
        """Infer the node's result again; tell its readers if the layout is another one."""
        value = self.infer(node)
        node.meta.setdefault("eager", node.meta["val"])
        if not _laid_out_alike(value, node.meta["val"]):
            self.changed.add(node)
        node.meta["val"] = value

    def infer(self, node: torch.fx.Node) -> Any:
        args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
        target: Any = node.target
        return run(target, args, kwargs) if isinstance(target, torch._ops.OpOverload) else target(*args, **kwargs)

    def restore_outputs(self) -> None:
        output = output_of(self.graph)
        results = tuple(
            self.as_eager(value, output, sharing=True) if isinstance(value, torch.fx.Node) else value
            for value in output.args[0]  # type: ignore[union-attr]
        )
        output.args = (results,)

    def as_eager(self, value: torch.fx.Node, before: torch.fx.Node, sharing: bool = False) -> torch.fx.Node:
        """The value under eager's strides, made once. `sharing`: views of one tensor stay views of one."""
        found = self.restored.get(value)
        if found is not None:
            return found
        eager, made = _eager(value), value
        alike = _laid_out_alike(eager, value.meta["val"])
        if _is_view(value) and (sharing or not alike and not _dense(eager)):
            base: Any = value.args[0]
            whole = self.as_eager(base, before, sharing)
            if whole is not base:
                arguments = (whole, *value.args[1:])
                made = GraphWriter(self.graph, before).add(value.target, arguments, dict(value.kwargs), eager)
        if made is value and not alike and isinstance(eager, torch.Tensor):
            made = self.laid_out(value, eager)
        self.restored[value] = made
        return made

    def laid_out(self, value: torch.fx.Node, eager: Any) -> torch.fx.Node:
        """At once, while the value is in a cache and before other values need memory."""
        if value.target is operator.getitem:
            value.args[0].append(value)  # type: ignore[union-attr]
        write, layout = GraphWriter(self.graph, value.next), (list(eager.size()), list(eager.stride()))
        if _same_memory(eager, value.meta["val"]):
            return write.add(aten.as_strided.default, (value, *layout), {}, eager)
        if all_same(eager.stride(), contiguous(eager.shape)):
            return write.add(aten.clone.default, (value,), {"memory_format": torch.contiguous_format}, eager)
        named = {"dtype": eager.dtype, "device": eager.device}
        empty = write.add(aten.empty_strided.default, layout, named, eager)
        return write.add(aten.copy.default, (empty, value), {}, eager)


def _eager(node: torch.fx.Node) -> Any:
    """What the node's result looks like in eager."""
    return node.meta.get("eager", node.meta["val"])


def _last(node: torch.fx.Node) -> bool:
    """Are its strides those of an image that eager lays out channels last?"""
    value = node.meta["val"]
    return value.dim() == 4 and all_same(value.stride(), channels_last(value.shape))


def _device(node: torch.fx.Node) -> str:
    return str(node.all_input_nodes[0].meta["val"].device.type)


def _dense(eager: Any) -> bool:
    """Has every element a place, and every place an element? What lies between them is the base's."""
    return isinstance(eager, torch.Tensor) and dense_order(eager.shape, eager.stride()) is not None


def _is_view(node: torch.fx.Node) -> bool:
    if node.target is operator.getitem:
        return is_view(node.args[0])  # type: ignore[arg-type]
    return is_view(node)


def _same_memory(one: Any, other: Any) -> bool:
    """Do the strides differ in dimensions of one element only, where they say nothing?"""
    return all(same(s, t) or is_one(n) for n, s, t in zip(one.size(), one.stride(), other.stride(), strict=True))


def _laid_out_alike(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return all_same(one.stride(), other.stride())
    return not isinstance(one, (tuple, list)) or all(map(_laid_out_alike, one, other))

"""Give convolutions the memory layout that they are fastest in.

before:  %c = convolution(%x, %w, ...)              %x strides NCHW
after:   %y = clone(%x, memory_format=channels_last); %c = convolution(%y, %w, ...)

and so for the gradient and the image that a convolution_backward takes.

oneDNN computes on channels_last images without reordering them (15 to 25% faster than NCHW on an AVX-512
machine), and what follows keeps the layout, so that one copy at the entry serves a whole network. Operators
that need the old layout get a copy back, and outputs have eager's strides. Nothing is changed in a graph
that looks at strides itself, nor, on the CPU, in one whose weights outweigh its images: there oneDNN spends its time
on reordering weights, and does that faster for NCHW (ResNet-50, 2 threads: at 128 pixels 74 ms against 90, at 224
pixels 314 against 243). On a GPU, cuDNN's kernels for half types and, where it may round products to TF32, for
float32 read channels_last and would reorder images (ResNet-50's inference on an H200: 2.8 ms against 3.6). Training in
float32 stays as it is: sums over the pixels of a channel are rows in NCHW, which one kernel computes, with what it
sums, and columns here (DenseNet-121's step: 1644 kernels, 6.9 ms, against 2500, 8.2 ms).
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph, Subprogram
from dovetail.normalize.passes.escape import is_view, output_of
from dovetail.ops.fake import FakeMode
from dovetail.ops.fake.images import suggests_channels_last
from dovetail.ops.fake.layout import is_one
from dovetail.ops.fake.relations import all_same, hint, same
from dovetail.ops.fake.tensor import run
from dovetail.options import Options

aten = torch.ops.aten

#: Operators whose result depends on the strides of their argument.
_LOOKS_AT_STRIDES = frozenset(
    {aten.as_strided.default, aten.as_strided_scatter.default, aten.empty_strided.default, aten.set_.default}
)
#: Which arguments of an operator are images, and which is the weight.
_IMAGES = {aten.convolution.default: (0,), aten.convolution_backward.default: (0, 1)}
_WEIGHT = {aten.convolution.default: 1, aten.convolution_backward.default: 2}
_TRANSPOSED = {aten.convolution.default: 6, aten.convolution_backward.default: 7}

#: Operators whose kernels read the first image in the layout of the second, and those that write a dense result of
#: an argument that they take to be contiguous: `(argument, the one that it has to be laid out like)`; None: contiguous.
_LIKE = {aten.native_group_norm_backward.default: (0, 1), aten.nll_loss2d_backward.default: (1, None)}

_NEEDS_VIEW = frozenset({aten.view.default, aten._unsafe_view.default, aten.view.dtype})


def prefer_channels_last(graph: AtenGraph, options: Options) -> AtenGraph:
    """In place on the graph; returns it unchanged when no convolution would gain."""
    nodes = [n for n in graph.graph.nodes if n.op == "call_function"]
    looks = any(n.target in _LOOKS_AT_STRIDES or isinstance(n.target, Subprogram) for n in nodes)
    dtypes = {device: _dtypes(device, nodes, options) for device in ("cpu", "cuda")}
    gaining = [n for n in nodes if _gains(n, dtypes)]
    if not looks and _images_outweigh(gaining):
        _Layout(graph).apply(nodes, set(gaining))
    return graph


def _images_outweigh(convolutions: list[torch.fx.Node]) -> bool:
    """Do these convolutions read and write more elements of images than of weights, by a factor of two?"""
    forward = [n for n in convolutions if n.target is aten.convolution.default]
    if forward and forward[0].args[0].meta["val"].device.type == "cuda":
        return True
    images = sum(_elements(n.args[0]) + _elements(n) for n in forward)
    weights = sum(_elements(n.args[1]) for n in forward)
    return bool(forward) and images >= 2 * weights


def _elements(node: torch.fx.Node) -> int:
    return hint(node.meta["val"].numel())


def _dtypes(device: str, nodes: list[torch.fx.Node], options: Options) -> tuple[torch.dtype, ...]:
    """Of the convolutions that gain."""
    if device == "cpu":
        return (torch.float32,)
    trains = any(n.target is aten.convolution_backward.default for n in nodes)
    rounds = torch.backends.cudnn.allow_tf32 and options.numerics != "eager"
    halves = (torch.float16, torch.bfloat16)
    return (*halves, torch.float32) if rounds and not trains else halves


def _gains(node: torch.fx.Node, dtypes: dict[str, tuple[torch.dtype, ...]]) -> bool:
    """A 2-d convolution of an image that has channels and pixels to reorder."""
    if node.target not in _IMAGES or node.args[_TRANSPOSED[node.target]]:
        return False
    image = node.args[_WEIGHT[node.target] - 1].meta["val"]
    if image.dim() != 4 or image.dtype not in dtypes.get(image.device.type, ()):
        return False
    return all(not isinstance(s, int) or s > 1 for s in image.shape[1:])


def _reordered(node: torch.fx.Node) -> tuple[int, ...]:
    """The arguments that get the layout: on a GPU the weight too, which cuDNN's callers would copy one by one."""
    weight = _WEIGHT[node.target]
    return (*_IMAGES[node.target], weight) if node.args[weight].meta["val"].device.type == "cuda" else _IMAGES[
        node.target]


class _Layout:
    """Recomputes the metadata downstream of every change."""

    def __init__(self, aten: AtenGraph) -> None:
        self.aten = aten
        self.graph = aten.graph
        self.copies: dict[tuple[torch.fx.Node, Any], torch.fx.Node] = {}
        self.changed: set[torch.fx.Node] = set()

    def apply(self, nodes: list[torch.fx.Node], gaining: set[torch.fx.Node]) -> None:
        with torch.no_grad(), FakeMode():
            for node in nodes:
                for k in _reordered(node) if node in gaining else ():
                    image = self.copy(node.args[k], torch.channels_last, node)
                    if image is not node.args[k]:
                        node.update_arg(k, image)
                        self.changed.add(node)
                if node in self.changed or any(n in self.changed for n in node.all_input_nodes):
                    self.agree(node)
                    self.refresh(node)
            self.restore_outputs()

    def agree(self, node: torch.fx.Node) -> None:
        """Give an operator arguments of layouts that its kernel takes together."""
        image, like = _LIKE.get(node.target, (None, None))
        if image is None:
            return
        last = like is not None and suggests_channels_last(node.args[like].meta["val"])
        layout = torch.channels_last if last else torch.contiguous_format
        node.update_arg(image, self.copy(node.args[image], layout, node))

    def copy(self, image: torch.fx.Node, layout: torch.memory_format, before: torch.fx.Node) -> torch.fx.Node:
        """`image` in `layout`, copied once."""
        value = image.meta["val"]
        if value.is_contiguous(memory_format=layout):
            return image
        made = self.copies.get((image, layout))
        if made is None:
            with self.graph.inserting_before(before):
                named = {"memory_format": layout}
                made = self.graph.create_node("call_function", aten.clone.default, (image,), named, "clone")
            made.meta["val"] = run(aten.clone.default, (value,), {"memory_format": layout})
            self.copies[image, layout] = made
        return made

    def refresh(self, node: torch.fx.Node) -> None:
        """Infer the node's result again; tell its readers if the layout is another one."""
        node.meta.setdefault("eager", node.meta["val"])
        try:
            value = self.infer(node)
        except RuntimeError:
            if node.target not in _NEEDS_VIEW:
                raise
            node.update_arg(0, self.copy(node.args[0], torch.contiguous_format, node))
            value = self.infer(node)
        if not _laid_out_alike(value, node.meta["val"]):
            self.changed.add(node)
        node.meta["val"] = value

    def infer(self, node: torch.fx.Node) -> Any:
        args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
        return node.target(*args, **kwargs) if not isinstance(node.target, torch._ops.OpOverload) else run(
            node.target, args, kwargs)

    def restore_outputs(self) -> None:
        output = output_of(self.aten)
        restored: dict[torch.fx.Node, torch.fx.Node] = {}
        results = tuple(
            self.as_eager(value, output, restored) if isinstance(value, torch.fx.Node) else value
            for value in output.args[0]  # type: ignore[union-attr]
        )
        output.args = (results,)

    def as_eager(
        self, value: torch.fx.Node, output: torch.fx.Node, restored: dict[torch.fx.Node, torch.fx.Node]
    ) -> torch.fx.Node:
        """The value under the strides that eager returns it with; views of one tensor stay views of one."""
        found = restored.get(value)
        if found is not None:
            return found
        eager = value.meta.get("eager", value.meta["val"])
        restored[value] = value
        if is_view(value) and (value.target is not operator.getitem or is_view(value.args[0])):  # type: ignore[arg-type]
            base = self.as_eager(value.args[0], output, restored)  # type: ignore[arg-type]
            if base is not value.args[0]:
                with self.graph.inserting_before(output):
                    again = self.graph.call_function(value.target, (base, *value.args[1:]), dict(value.kwargs))
                again.meta["val"] = eager
                restored[value] = again
        elif isinstance(eager, torch.Tensor) and not all_same(eager.stride(), value.meta["val"].stride()):
            restored[value] = self.laid_out(value, eager)
        return restored[value]

    def laid_out(self, value: torch.fx.Node, eager: Any) -> torch.fx.Node:
        """At once, while the value is in a cache and before other values need memory."""
        if value.target is operator.getitem:
            value.args[0].append(value)  # type: ignore[union-attr]
        with self.graph.inserting_before(value.next):
            if _same_memory(eager, value.meta["val"]):
                made = self.graph.call_function(
                    aten.as_strided.default, (value, list(eager.size()), list(eager.stride()))
                )
                made.meta["val"] = eager
                return made
            empty = self.graph.call_function(
                aten.empty_strided.default, (list(eager.size()), list(eager.stride())),
                {"dtype": eager.dtype, "device": eager.device},
            )
            made = self.graph.call_function(aten.copy.default, (empty, value))
        empty.meta["val"] = made.meta["val"] = eager
        return made


def _same_memory(one: Any, other: Any) -> bool:
    """Do the strides differ in dimensions of one element only, where they say nothing?"""
    return all(same(s, t) or is_one(n) for n, s, t in zip(one.size(), one.stride(), other.stride(), strict=True))


def _laid_out_alike(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return all_same(one.stride(), other.stride())
    return not isinstance(one, (tuple, list)) or all(map(_laid_out_alike, one, other))

"""Which layout of images a program is faster with on a GPU: tried out on the device.

This is asked of training steps in float32, and of what has grouped convolutions: cuDNN has fast kernels for some, and
for others slower ones than PyTorch has for images as they are (ConvMixer's 9x9 depthwise ones on an H200: 24 ms
instead of 7.6).

cuDNN's kernels for TF32 read images with the channels last, and it reorders others before and after each of them.
Kernels of norms are the slower there: a channel's pixels are a column, whose sum takes two kernels, and the rows of a
channel are read along with the others'. On an H100, ms of a whole step (`docs/gpu-kernels.md`):

                      as they are   channels last
    ResNet-50, 32x224²       17.6            15.1
    EfficientNet-B0, 32x224² 15.0            11.1
    RegNetY-016, 16x224²     17.1            18.2
    DenseNet-121, 16x128²     8.2             8.7
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from dovetail.ir.trials import AnyTensor, TimedCall
from dovetail.ops.calls.trials import microseconds
from dovetail.ops.fake.rules.layout import channels_last, is_one

aten = torch.ops.aten
Node = torch.fx.Node
_LOG = logging.getLogger("dovetail.perf_hints")
#: Only convolutions that have so much of the work are tried, the largest ones, since a library takes long to choose
#: what it computes one with: trying all of EfficientNet-B0's step took 9 s, and 7 so. The rest is taken to gain alike.
TRIED = 0.85
#: Operations in the time of moving a byte, roughly, in TF32 on an H100: it says which convolutions are the largest.
A_BYTE = 130.0
#: Microseconds that the kernels of a norm take more in each pass, and the part of the time of reading its images.
KERNELS, SLOWER = 10.0, 0.25
#: Images that each pass of a norm reads.
_READ: dict[Any, int] = {
    aten._native_batch_norm_legit_functional.default: 1, aten.native_batch_norm_backward.default: 2,
}  # fmt: skip


def last_is_faster(nodes: Sequence[Node], convolutions: Sequence[Node]) -> bool | None:
    """For these convolutions, by what they and the norms among the nodes take. None where that cannot be told."""
    given = [_trial(node) for node in convolutions]
    if None in given or not given:
        return None
    trials, share = _largest([t for t in given if t is not None], [_work(node) for node in convolutions])
    image: torch.Tensor = convolutions[0].args[0].meta["val"]  # type: ignore[union-attr]
    turned = [_turned(trial) for trial in trials]
    largest = max((p for t in trials for p in t.args if isinstance(p, AnyTensor)), key=_bytes)
    copy = TimedCall(aten.copy_.default, (largest, largest))
    distinct = list(dict.fromkeys((*trials, *turned, copy)))
    found = microseconds(distinct, image.device)
    if found is None:
        return None
    times = dict(zip(distinct, found, strict=True))
    now, then = (sum(times[t] for t in kind) / share for kind in (trials, turned))
    norms = sum(KERNELS + SLOWER * read * times[copy] / (2 * _bytes(largest)) for read in _reads(nodes))
    chosen = "channels last" if then + norms < now else "as they are"
    _LOG.info("convolutions: %.0f us with images as they are, %.0f with the channels last", now, then)
    _LOG.info("norms: about %.0f us more with the channels last. Images are laid out %s", norms, chosen)
    return then + norms < now


def _largest(trials: Sequence[TimedCall], work: Sequence[float]) -> tuple[list[TimedCall], float]:
    """The calls that together have most of the work, and how much of it."""
    of_each: dict[TimedCall, float] = {}
    for trial, some in zip(trials, work, strict=True):
        of_each[trial] = of_each.get(trial, 0.0) + some
    taken, done, whole = set(), 0.0, sum(of_each.values())
    for trial in sorted(of_each, key=of_each.__getitem__, reverse=True):
        if done >= TRIED * whole:
            break
        taken.add(trial)
        done += of_each[trial]
    return [trial for trial in trials if trial in taken], done / whole if whole else 1.0


def _work(node: Node) -> float:
    """Of a convolution or its gradients, in bytes that could be moved meanwhile."""
    values: Any = torch.fx.node.map_arg([*node.args[:3], node], lambda n: n.meta["val"])
    tensors = [t for value in values for t in (value if isinstance(value, tuple) else (value,))]
    moved = sum(t.numel() * t.itemsize for t in tensors if isinstance(t, torch.Tensor))
    backward = node.target is aten.convolution_backward.default
    image, weight = (values[0], values[2]) if backward else (values[3], values[1])
    operations = 2 * weight.numel() * image.numel() / image.shape[1]
    return moved + operations * (1 + backward) / A_BYTE


def _trial(node: Node) -> TimedCall | None:
    """None where sizes vary."""
    args = torch.fx.node.map_arg(node.args, lambda n: n.meta["val"])
    made = [AnyTensor(tuple(a.shape), tuple(a.stride()), a.dtype) if isinstance(a, torch.Tensor) else a for a in args]
    sizes = [s for place in made if isinstance(place, AnyTensor) for s in (*place.sizes, *place.strides)]
    plain = tuple(tuple(a) if isinstance(a, list) else a for a in made)
    return TimedCall(node.target, plain) if all(type(s) is int for s in sizes) else None


def _turned(trial: TimedCall) -> TimedCall:
    """The same with the channels last of all that has four dimensions."""
    args = (replace(a, strides=channels_last(a.sizes)) if _is_image(a) else a for a in trial.args)
    return replace(trial, args=tuple(args))


def _is_image(value: object) -> bool:
    return isinstance(value, AnyTensor) and len(value.sizes) == 4 and not all(map(is_one, value.sizes[1:]))


def _bytes(place: AnyTensor) -> int:
    elements = 1
    for n in place.sizes:
        elements *= n
    return elements * place.dtype.itemsize


def _reads(nodes: Sequence[Node]) -> Iterator[int]:
    """Bytes of images that each norm reads."""
    for node in nodes:
        image = node.args[0].meta["val"] if node.target in _READ else None  # type: ignore[union-attr]
        if image is not None and image.dim() == 4:
            yield _READ[node.target] * image.numel() * image.itemsize

"""Attention masks that hide nothing, or what follows, by what is known of them without computing them. And those that
kernels of a GPU would not read as they are.

    (arange(n)[:, None] >= 0).expand(b, 1, n, n)    ->    no mask
    arange(n)[:, None] >= arange(n)                 ->    is_causal=True

Libraries make them where they may not look at values, as in compiled code. PyTorch would choose a kernel that reads
masks, on GPUs often one that keeps all scores in memory, and in causal models one that computes twice as much.
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir.devices import on_gpu
from dovetail.normalize.affine_index import ALWAYS, Affine, below, shown
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.ops.fake.rules.layout import is_one
from dovetail.ops.fake.symbolic.size_questions import same

_NAMES = ("attn_mask", "dropout_p", "is_causal")  # after query, key and value
_CAUSAL = Affine(0, frozenset({(-1, 1), (-2, -1)}))  # column - row


def without_known_mask(recorder: AtenRecorder, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Arguments and keywords for `scaled_dot_product_attention`: those given, or the same without their mask."""
    named = dict(zip(_NAMES, args[3:], strict=False)) | kwargs
    mask = named.get("attn_mask")
    if len(args) < 3 or not isinstance(mask, torch.Tensor) or mask.requires_grad or named.get("is_causal"):
        return args, kwargs
    if not _fits(mask, *args[:2]):
        return args, kwargs
    node = recorder.node_of(recorder.handle(mask))
    form = below(node) if mask.dtype is torch.bool else shown(node)
    causal = form == _CAUSAL and same(args[0].shape[-2], args[1].shape[-2])
    if form != ALWAYS and not causal:
        return args, kwargs
    return args[:3], {**named, "attn_mask": None, "is_causal": causal}


def _fits(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> bool:
    """Would eager take it? It raises for types and sizes that do not match."""
    if mask.dtype not in (torch.bool, query.dtype):
        return False
    scores = (*query.shape[:-1], key.shape[-2])
    sizes = zip(reversed(mask.shape), reversed(scores), strict=False)
    return mask.dim() <= len(scores) and all(is_one(m) or same(m, n) for m, n in sizes)


def with_rows_in_one_piece(args: tuple, kwargs: dict[str, Any]) -> Any:
    """Arguments and keywords for `scaled_dot_product_attention` on a GPU, where PyTorch has no kernel for masks whose
    rows are not contiguous, such as position biases looked up by head, and keeps all scores in memory, in float32.
    Not with dropout: another kernel draws other numbers."""
    named = dict(zip(_NAMES, args[3:], strict=False)) | kwargs
    mask = named.get("attn_mask")
    if not isinstance(mask, torch.Tensor) or not on_gpu(mask) or named.get("dropout_p") or mask.dim() < 2:
        return args, kwargs
    if is_one(mask.shape[-1]) or is_one(mask.stride(-1)):
        return args, kwargs
    repeated = [not mask.requires_grad and same(stride, 0) for stride in mask.stride()]
    once = mask[tuple(slice(1) if again else slice(None) for again in repeated)]
    return args[:3], {**named, "attn_mask": once.contiguous().expand(mask.shape)}

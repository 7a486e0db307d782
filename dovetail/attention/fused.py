"""flex_attention as kernels of a template: which calls they take, and how a graph records them.

before:  flex_attention(score_mod, mask_mod, q, k, v, scale, [slopes], [])
after:   %out, %logarithms, %largest = dovetail.template([%q, %k, %v, %slopes], "...")

and for gradients two templates more, with what each row's have in common computed in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.attention.elements import scores
from dovetail.attention.ranges import Grid, ranges
from dovetail.codegen.gpu import attention as templates
from dovetail.errors import Unsupported
from dovetail.ir.aten import NotDifferentiable
from dovetail.ir.attention import Attention, Ranges, Strides, Tiles
from dovetail.ir.devices import on_gpu
from dovetail.ops.calls.flex_attention import narrowed, strides_like
from dovetail.ops.lowering import build
from dovetail.ops.own.template import begin, template

Tensors = Sequence[torch.Tensor]
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
#: Tensor cores multiply 16 numbers at least.
WIDTHS = (16, 32, 64, 128, 256)
#: Of fewer rows, as of a word that is generated, most of a block is empty and programs are few; their scores are small.
FEWEST_ROWS = 16


def recorded(
    score_mod: Any, mask_mod: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float,
    score_lifted: Tensors, mask_lifted: Tensors,
) -> Any:  # fmt: skip
    """What flex_attention gives, by kernels; NotImplemented for what they do not take."""
    query, key, value = narrowed(query, key, value)
    lifted = [*score_lifted, *mask_lifted]
    if not (_fits(query, key, value, scale) and all(_is_table(t, query.device) for t in lifted)):
        return NotImplemented
    trained = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if torch.is_grad_enabled() and any(t.requires_grad for t in lifted):
        return NotImplemented
    try:
        with _disable_current_modes():
            functions = (score_mod, mask_mod), (score_lifted, mask_lifted)
            kernels = Kernels(*functions, (query, key, value), float(scale), trained)
    except (Unsupported, NotDifferentiable):
        return NotImplemented
    return list(_Attention.apply(kernels, query, key, value, *(lifted[k] for k in kernels.read)))


def _fits(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: Any) -> bool:
    sizes = [n for t in (query, key, value) for n in (*t.shape, *t.stride())]
    if not all(type(n) is int for n in sizes) or type(scale) not in (int, float) or not on_gpu(query):
        return False
    given = (query, key, value)
    alike = query.dtype in DTYPES and all(t.dim() == 4 and t.numel() and t.dtype is query.dtype for t in given)
    return alike and _in_blocks(query, key, value)


def _in_blocks(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    given = (query, key, value)
    if not query.shape[0] == key.shape[0] == value.shape[0] or query.shape[1] % key.shape[1]:
        return False
    widest = (*query.shape[:3], max(query.shape[3], value.shape[3]))
    short = all(_short(t.shape, t.stride()) for t in given) and _short(widest, strides_like(widest, query))
    rows = math.prod(query.shape[:3]) < 1 << 31 and value.shape[1:3] == key.shape[1:3]
    many = query.shape[2] >= FEWEST_ROWS
    most = templates.widest(query.dtype)
    wide = all(width in WIDTHS and width <= most for width in (query.shape[3], value.shape[3]))
    return short and rows and many and wide


def _short(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Do 32 bits hold the places of a head?"""
    return all(abs(step) * n < 1 << 30 for n, step in zip(sizes[2:], strides[2:], strict=True))


def _is_table(tensor: Any, device: torch.device) -> bool:
    """May the functions read it?"""
    known = isinstance(tensor, torch.Tensor) and all(type(n) is int for n in (*tensor.shape, *tensor.stride()))
    return known and tensor.device == device and tensor.dtype in build.SUPPORTED and not tensor.is_neg()


class Kernels:
    """The texts for one call. Raises Unsupported for functions that they do not take."""

    def __init__(
        self, functions: tuple[Any, Any], lifted: tuple[Tensors, Tensors],
        tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor], scale: float, trained: bool,
    ) -> None:  # fmt: skip
        query, key, value = tensors
        sizes = (*query.shape[:3], key.shape[2])
        found = scores(sizes, query.device, functions, lifted, trained)
        self.mask_mod, self.tensors = functions[1], tensors
        self.read = [int(t.name.removeprefix("table")) for t in found.tables]
        every = [*lifted[0], *lifted[1]]
        self.tables = {t.name: every[k].stride() for t, k in zip(found.tables, self.read, strict=True)}
        self.attention = Attention(
            query.shape[0], query.shape[1], key.shape[1], query.shape[2], key.shape[2], query.shape[3], value.shape[3],
            query.dtype, scale, found, query.stride(), key.stride(), value.stride(),
        )  # fmt: skip

    def shape(self, kind: str) -> tuple[Tiles, Ranges]:
        """Of a kernel: its blocks, and what each of them sees."""
        a = self.attention
        blocks = templates.blocks(kind, a.dtype, max(a.width, a.value_width))
        return blocks, ranges(self.mask_mod, Grid(a.sizes, blocks.rows, blocks.keys, across=kind == "key"))

    def like(self, tensor: torch.Tensor, width: int | None = None) -> Strides:
        """Of a result that is laid out as the tensor."""
        return strides_like((*tensor.shape[:3], width or tensor.shape[3]), tensor)

    def forward(self) -> str:
        out = self.like(self.tensors[0], self.attention.value_width)
        return templates.forward(self.attention, *self.shape("forward"), out, self.tables).code()

    def query(self, tangent: Strides) -> str:
        out = self.like(self.tensors[0])
        return templates.query_gradient(self.attention, *self.shape("query"), tangent, out, self.tables).code()

    def key(self, tangent: Strides) -> str:
        outs = self.like(self.tensors[1]), self.like(self.tensors[2])
        return templates.key_gradients(self.attention, *self.shape("key"), tangent, outs, self.tables).code()


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernels: Kernels, *given: torch.Tensor) -> Any:
        code = kernels.forward()
        begin(code, given[0].device)
        with torch._C._AutoDispatchBelowAutograd():
            out, logarithms, largest = template(list(given), code)
        ctx.kernels = kernels
        ctx.save_for_backward(out, logarithms, *given)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(largest)
        return out, logarithms, largest

    @staticmethod
    def backward(ctx: Any, tangent: Any, of_logarithms: Any, _: Any) -> Any:
        out, logarithms, query, key, value, *tables = ctx.saved_tensors
        nothing = [None] * len(tables)
        if tangent is None and of_logarithms is None:
            return None, None, None, None, *nothing
        tangent = torch.zeros_like(out) if tangent is None else tangent
        tangent = tangent if _short(tangent.shape, tangent.stride()) else tangent.contiguous()
        delta = (out.to(torch.float32) * tangent.to(torch.float32)).sum(-1)
        if of_logarithms is not None:
            delta = delta - of_logarithms / math.log(2)
        given = [query, key, value, tangent, logarithms, delta.contiguous(), *tables]
        codes: list[Callable[[Strides], str]] = [ctx.kernels.query, ctx.kernels.key]
        with _disable_current_modes():
            texts = [code(tangent.stride()) for code in codes]
            for text in texts:
                begin(text, query.device)
        (of_query,), of_others = map(partial(template, given), texts)
        return None, of_query, *of_others, *nothing

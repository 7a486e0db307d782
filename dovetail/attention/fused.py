"""flex_attention as kernels of a template: which calls they take, and how a graph records them.

before:  flex_attention(score_mod, mask_mod, q, k, v, scale, [slopes], [])
after:   %out, %logarithms, %largest = dovetail.template([%q, %k, %v, %slopes], "...")

and for gradients two templates more, with what each row's have in common computed in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.attention import host
from dovetail.attention.elements import scores
from dovetail.attention.ranges import Grid, ranges, unknown
from dovetail.codegen.gpu import attention as templates
from dovetail.errors import Unsupported
from dovetail.ir.aten import NotDifferentiable
from dovetail.ir.attention import Attention, Ranges, Strides, Tiles
from dovetail.ir.devices import on_gpu
from dovetail.ir.gpus import gpu
from dovetail.ir.template import Template
from dovetail.ops.calls.flex_attention import narrowed, strides_like
from dovetail.ops.fake.symbolic.size_questions import all_same, same, symbolic
from dovetail.ops.lowering import build
from dovetail.ops.own.template import begin, template

Tensors = Sequence[torch.Tensor]
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
#: Of fewer rows, as of a word that is generated, most of a block is empty and programs are few; their scores are small.
FEWEST_ROWS = 16
LARGEST_SQUARE = 32


def recorded(
    score_mod: Any, mask_mod: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float,
    score_lifted: Tensors, mask_lifted: Tensors,
) -> Any:  # fmt: skip
    """What flex_attention gives, by kernels; NotImplemented for what they do not take."""
    query, key, value = narrowed(query, key, value)
    lifted = [*score_lifted, *mask_lifted]
    if not (_fits(query, key, value, scale) and all(_is_table(t, query.device) for t in lifted)):
        return NotImplemented
    functions = score_mod, mask_mod
    if not on_gpu(query):
        return host.recorded(functions, (score_lifted, mask_lifted), (query, key, value), float(scale))
    if not _in_blocks(query, key, value):
        return NotImplemented
    learned = [k for k, t in enumerate(score_lifted) if torch.is_grad_enabled() and t.requires_grad]
    if learned and torch.are_deterministic_algorithms_enabled():
        return NotImplemented
    score_lifted = [t.contiguous() if k in learned else t for k, t in enumerate(score_lifted)]
    lifted = [*score_lifted, *mask_lifted]
    trained = bool(learned) or torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    try:
        with _disable_current_modes():
            tensors = query, key, value
            kernels = Kernels(functions, (score_lifted, mask_lifted), tensors, float(scale), trained, learned)
    except (Unsupported, NotDifferentiable):
        return NotImplemented
    return list(_Attention.apply(kernels, query, key, value, *(lifted[k] for k in kernels.read)))


def _fits(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: Any) -> bool:
    given = (query, key, value)
    if on_gpu(query) and symbolic(n for t in given for n in (*t.shape, *t.stride())):
        return False
    if query.dtype not in DTYPES or not all(t.dim() == 4 and t.dtype is query.dtype and not t.is_neg() for t in given):
        return False
    if type(scale) not in (int, float) or not all(n != 0 for t in given for n in t.shape):
        return False
    if not all_same(value.shape[1:3], key.shape[1:3]) or query.shape[2] < FEWEST_ROWS:
        return False
    return all(same(query.shape[0], t.shape[0]) for t in (key, value)) and query.shape[1] % key.shape[1] == 0


def _in_blocks(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    """Do a GPU's blocks hold them?"""
    given = (query, key, value)
    widest = (*query.shape[:3], max(query.shape[3], value.shape[3]))
    short = all(_short(t.shape, t.stride()) for t in given) and _short(widest, strides_like(widest, query))
    rows = math.prod(query.shape[:3]) < 1 << 31
    wide = max(query.shape[3], value.shape[3]) <= templates.widest(query.dtype)
    return short and rows and wide


def _short(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Do 32 bits hold the places of a head?"""
    return all(abs(step) * n < 1 << 30 for n, step in zip(sizes[2:], strides[2:], strict=True))


def _is_table(tensor: Any, device: torch.device) -> bool:
    """May the functions read it?"""
    known = isinstance(tensor, torch.Tensor) and tensor.device == device and tensor.dtype in build.SUPPORTED
    return known and not tensor.is_neg() and not (on_gpu(tensor) and symbolic((*tensor.shape, *tensor.stride())))


class Kernels:
    """The texts for one call. Raises Unsupported for functions that they do not take."""

    def __init__(
        self, functions: tuple[Any, Any], lifted: tuple[Tensors, Tensors],
        tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor], scale: float, trained: bool,
        learned: Sequence[int],
    ) -> None:  # fmt: skip
        query, key, value = tensors
        sizes = (*query.shape[:3], key.shape[2])
        found = scores(sizes, query.device, functions, lifted, trained, learned)
        self.mask_mod, self.tensors = functions[1], tensors
        self.read = [int(t.name.removeprefix("table")) for t in found.tables]
        every = [*lifted[0], *lifted[1]]
        self.tables = {t.name: every[k].stride() for t, k in zip(found.tables, self.read, strict=True)}
        self.attention = Attention(
            query.shape[0], query.shape[1], key.shape[1], query.shape[2], key.shape[2], query.shape[3], value.shape[3],
            query.dtype, scale, found, query.stride(), key.stride(), value.stride(),
        )  # fmt: skip

        blocks = self.blocks("forward")
        self.listed = unknown(self.mask_mod, Grid(self.attention.sizes, blocks.rows, blocks.keys))

    def blocks(self, kind: str) -> Tiles:
        """Of a kernel."""
        a = self.attention
        return templates.blocks(kind, a.dtype, max(a.width, a.value_width), gpu(self.tensors[0].device).shared)

    def shape(self, kind: str) -> tuple[Tiles, Ranges]:
        """Of a kernel: its blocks, and what each of them sees."""
        blocks = self.blocks(kind)
        if self.listed:
            return blocks, Ranges((), True, True, listed=True)
        return blocks, ranges(self.mask_mod, Grid(self.attention.sizes, blocks.rows, blocks.keys, kind == "key"))

    @property
    def side(self) -> int:
        """Of squares that all blocks are made of; registers hold no larger ones."""
        tiles = map(self.blocks, ("forward", "query", "key"))
        return math.gcd(LARGEST_SQUARE, *(n for t in tiles for n in (t.rows, t.keys)))

    def squares(self, given: Tensors) -> list[torch.Tensor]:
        """What is seen of each square of places, where that is unknown so far. `given` begins with the query."""
        if not self.listed:
            return []
        scores = self.attention.scores
        read = [t for t, table in zip(given[3:], scores.tables, strict=True) if table in scores.mask_tables]
        return _launched(read or [given[0]], templates.squares(self.attention, self.side, self.tables))

    def lists(self, kind: str, squares: Tensors) -> list[torch.Tensor]:
        """Of the blocks that each block sees."""
        if not self.listed:
            return []
        made = templates.lists(self.attention, self.blocks(kind), self.side, kind == "key")
        return _launched(list(squares), made)

    def like(self, tensor: torch.Tensor, width: int | None = None) -> Strides:
        """Of a result that is laid out as the tensor."""
        return strides_like((*tensor.shape[:3], width or tensor.shape[3]), tensor)

    def forward(self) -> Template:
        out = self.like(self.tensors[0], self.attention.value_width)
        return templates.forward(self.attention, *self.shape("forward"), out, self.tables)

    def query(self, tangent: Strides) -> Template:
        out = self.like(self.tensors[0])
        return templates.query_gradient(self.attention, *self.shape("query"), tangent, out, self.tables)

    def key(self, tangent: Strides) -> Template:
        outs = self.like(self.tensors[1]), self.like(self.tensors[2])
        return templates.key_gradients(self.attention, *self.shape("key"), tangent, outs, self.tables)

    def of_tables(self, tables: Tensors, sums: Tensors) -> list[torch.Tensor | None]:
        """Gradients of the tables that the functions read, of which `sums` are those that are learned."""
        scores = self.attention.scores
        found = dict(zip((t.name for t in scores.learned), sums, strict=True))
        return [
            found[t.name].view(given.shape).to(given.dtype) if t.name in found else None
            for t, given in zip(scores.tables, tables, strict=True)
        ]


def _launched(given: list[torch.Tensor], made: Template) -> list[torch.Tensor]:
    begin(made, given[0].device)
    found: list[torch.Tensor] = template(given, made.code())
    return found


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernels: Kernels, *given: torch.Tensor) -> Any:
        made = kernels.forward()
        with torch._C._AutoDispatchBelowAutograd():
            squares = kernels.squares(given)
            out, logarithms, largest = _launched([*given, *kernels.lists("forward", squares)], made)
        ctx.kernels = kernels
        ctx.save_for_backward(out, logarithms, *given, *squares)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(largest)
        return out, logarithms, largest

    @staticmethod
    def backward(ctx: Any, tangent: Any, of_logarithms: Any, _: Any) -> Any:
        out, logarithms, query, key, value, *rest = ctx.saved_tensors
        tables, squares = rest[: len(ctx.kernels.read)], rest[len(ctx.kernels.read) :]
        if tangent is None and of_logarithms is None:
            return None, None, None, None, *[None] * len(tables)
        tangent = torch.zeros_like(out) if tangent is None else tangent
        tangent = tangent if _short(tangent.shape, tangent.stride()) else tangent.contiguous()
        delta = (out.to(torch.float32) * tangent.to(torch.float32)).sum(-1)
        if of_logarithms is not None:
            delta = delta - of_logarithms / math.log(2)
        given = [query, key, value, tangent, logarithms, delta.contiguous(), *tables]
        with _disable_current_modes():
            found = {"query": ctx.kernels.query(tangent.stride()), "key": ctx.kernels.key(tangent.stride())}
            for made in found.values():
                begin(made, query.device)
        results = [template([*given, *ctx.kernels.lists(kind, squares)], made.code()) for kind, made in found.items()]
        (of_query, *sums), of_others = results
        return None, of_query, *of_others, *ctx.kernels.of_tables(tables, sums)

"""What the kernels of attention have in common: lines, tiles of memory, and what is written of scores."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from dovetail.codegen.common.signature import KernelSignature
from dovetail.codegen.gpu import types
from dovetail.codegen.gpu.expressions import Expressions, Scope
from dovetail.codegen.gpu.operators import HELPERS, helpers_of
from dovetail.ir import dims
from dovetail.ir.attention import Attention, Ranges, Strides, Tiles
from dovetail.ir.template import Result, Template

#: What numbers are multiplied by so that powers of 2 are their exponentials.
_LOG2E = math.log2(math.e)
_HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"
_PLACES = ("b", "h", "i", "j")


class _Literals(KernelSignature):
    """All sizes are known: they stand in the text."""

    def number(self, number: int) -> str:
        return f"%{number}"


class AttentionWriter:
    """`along`: the place that a kernel's loop goes along, `i` or `j`. `tangent`: how the gradient of the rows is laid
    out, where there is one."""

    def __init__(
        self, name: str, attention: Attention, blocks: Tiles, ranges: Ranges, along: str, tangent: Strides | None = None
    ) -> None:
        self.name, self.attention, self.blocks, self.ranges = name, attention, blocks, ranges
        self.tangent = tangent
        self.em = Expressions(_Literals(), wide=False)
        self.em.bound = dict(zip(map(dims.as_symbol, attention.scores.places), _PLACES, strict=True))
        self.em.symbols = frozenset({dims.as_symbol(attention.scores.places[_PLACES.index(along)])})
        for table in attention.scores.tables:
            self.em.signature.pointer(table.name)
        #: A float32 is multiplied as the sum of two TF32; the product of the smaller ones is left out.
        self.precision = f"input_precision='{'tf32x3' if attention.dtype is torch.float32 else 'ieee'}'"
        uneven = attention.rows % blocks.rows != 0, attention.keys % blocks.keys != 0
        #: Under what condition a place of a block exists; empty where all do.
        self.rows_exist = f"rows < {attention.rows}" if uneven[0] else ""
        self.columns_exist = f"columns < {attention.keys}" if uneven[1] else ""
        self.blocks_of_rows = -(-attention.rows // blocks.rows)
        self.blocks_of_keys = -(-attention.keys // blocks.keys)

    # ------------------------------------------------------------ lines

    def lines(self, *texts: str) -> None:
        """In front of the loop, or behind it."""
        for text in texts:
            self.em.outer.line(text)

    @contextmanager
    def repeated(self, loop: str) -> Iterator[None]:
        """Inside, lines are those of a loop, if there is one."""
        before = self.em.outer
        self.em.outer = Scope(before.indent + "    " * bool(loop))
        yield
        before.lines += [before.indent + loop] * bool(loop) + self.em.outer.lines
        self.em.outer = before

    # ------------------------------------------------------------ loops over blocks

    def loops(self, step: Iterable[str]) -> None:
        """The loop for blocks that are seen in part, in full, and again in part. See `written` for what `step` says."""
        body = list(step)
        self.lines(*(f"bound{k} = tl.load(table + block * 4 + {k})" for k in range(4)))
        spans = [(0, 1, True), (1, 2, False), (2, 3, True)] if self.ranges.part else [(1, 2, False)]
        for first, last, masked in spans if self.ranges.full else [(0, 3, True)]:
            self.loop(body, f"bound{first}", f"bound{last}", masked)

    def loop(self, body: list[str], first: str, last: str, masked: bool) -> None:
        em, outer, given = self.em, self.em.outer, self.attention.scores
        em.inner = Scope(outer.indent + "    ")
        em.inner.memo |= {given.score: "score", given.tangent: "change"}
        for text in body:
            em.inner.lines += [em.inner.indent + line for line in self.written(text, masked)]
        outer.line(f"for step in range({first}, {last}):")
        outer.lines += em.inner.lines
        em.inner = None

    def written(self, text: str, masked: bool) -> list[str]:
        """The line itself, or `@power` and `@gradient`: of a score, and of a gradient; `@shown`: what is seen, with a
        condition for places that exist; `@hide NAME OTHER`: what is not seen becomes another number."""
        name, _, rest = text.partition(" ")
        scores = self.attention.scores
        if name == "@power":
            return [f"power = tl.broadcast_to({self.em.value(scores.value)} * {_LOG2E!r}, score.shape)"]
        if name == "@gradient":
            assert scores.gradient is not None
            return [f"gradient = tl.broadcast_to({self.em.value(scores.gradient)}, score.shape)"]
        if name[0] == "@" and not masked:
            return []
        if name == "@shown":
            inside = f" & ({rest})" if rest else ""
            return [f"shown = tl.broadcast_to({self.em.value(scores.mask)}{inside}, score.shape)"]
        hidden, _, other = rest.partition(" ")
        return [f"{hidden} = tl.where(shown, {hidden}, {other})" if name == "@hide" else text]

    # ------------------------------------------------------------ the whole kernel

    def template(self, results: dict[str, Result], programs: int, tables: dict[str, Strides]) -> Template:
        """`results` by the name of their pointer; `tables`: how what the functions read is laid out."""
        a = self.attention
        given = {"query": (a.dtype, a.query), "key": (a.dtype, a.key), "value": (a.dtype, a.value)}
        if self.tangent is not None:
            plain = torch.float32, (a.heads * a.rows, a.rows, 1)
            given |= {"tangent": (a.dtype, self.tangent), "logarithms": plain, "delta": plain}
        given |= {f"p{k}": (t.dtype, tables[t.name]) for k, t in enumerate(a.scores.tables)}
        dtypes = [dtype for dtype, _ in given.values()] + [result.type for result in results.values()]
        arguments = (*(f"*{types.TYPES[dtype][1]}" for dtype in dtypes), "*i32")
        body = "\n".join(self.em.outer.lines)
        helpers = "".join(HELPERS[name] for name in helpers_of(body))
        text = f"{_HEAD}{helpers}\n\n@triton.jit\ndef K({', '.join([*given, *results, 'table'])}):\n{body}\n"
        digest = hashlib.sha256(f"{arguments}{self.blocks}{text}".encode()).hexdigest()[:16]
        symbol = f"{self.name}_{digest}"
        return Template(
            symbol, text.replace("def K(", f"def {symbol}("), arguments, self.blocks.warps, self.blocks.stages,
            programs, tuple(strides for _, strides in given.values()), tuple(results.values()), self.ranges.table,
        )  # fmt: skip


def tile(pointer: str, strides: Strides, places: str, width: str, exists: str) -> str:
    """A load of `places` of a head, as far as they exist."""
    address = f"{pointer} + {places} * {strides[2]} + {width} * {strides[3]}"
    return f"tl.load({address}, mask={exists}, other=0.0)" if exists else f"tl.load({address})"


def head(pointer: str, strides: Strides, which: str) -> str:
    """Where a head begins."""
    return f"{pointer} + b.to(tl.int64) * {strides[0]} + {which}.to(tl.int64) * {strides[1]}"


def places(name: str, seen: str, numbers: str, size: int, block: int) -> list[str]:
    """A block's places, and as functions see them: those exist."""
    return [f"{name} = {numbers}", f"{seen} = tl.minimum({name}, {size - 1})" if size % block else f"{seen} = {name}"]

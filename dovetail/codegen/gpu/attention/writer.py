"""What the kernels of attention have in common: lines, tiles of memory, and what is written of scores."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch

from dovetail.codegen.common.signature import KernelSignature
from dovetail.codegen.gpu import types
from dovetail.codegen.gpu.expressions import Expressions, Scope
from dovetail.codegen.gpu.operators import HELPERS, helpers_of
from dovetail.ir import dims
from dovetail.ir.attention import Attention, Ranges, Strides, Tiles
from dovetail.ir.kernel import GpuLaunch
from dovetail.ir.loops import Expr
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
        self.name, self.attention, self.blocks, self.ranges, self.along = name, attention, blocks, ranges, along
        self.tangent, self.asks = tangent, tangent is None
        self.forms: dict[str, Callable[[str, bool], list[str]]] = {
            "@power": self._power, "@gradient": self._gradient, "@shown": self._shown, "@hide": self._hide,
        }  # fmt: skip
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
        #: How wide tiles are, and under what condition a place along one exists.
        self.width, self.value_width = tile_width(attention.width), tile_width(attention.value_width)
        self.width_exists = {
            name: f"{name} < {width}"
            for names, width in (
                (("wide", "down"), attention.width),
                (("wide_value", "down_value"), attention.value_width),
            )
            for name in names
            if width != tile_width(width)
        }
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

    def tile(self, pointer: str, strides: Strides, places: str, width: str, exists: str) -> str:
        """A load of `places` of a head along `width`, as far as they exist."""
        mask = self.mask(exists, width)
        return f"tl.load({pointer} + {places} * {strides[2]} + {width} * {strides[3]}{mask and mask + ', other=0.0'})"

    def mask(self, exists: str, width: str) -> str:
        """The argument of a load or a store."""
        conditions = [text for text in (exists, self.width_exists.get(width, "")) if text]
        return (
            f", mask={' & '.join(f'({c})' for c in conditions) if conditions[1:] else conditions[0]}"
            if conditions
            else ""
        )

    # ------------------------------------------------------------ loops over blocks

    def loops(self, step: Iterable[str]) -> None:
        """The loop for blocks that are seen in part, in full, and again in part. See `written` for what `step` says."""
        body = list(step)
        if self.ranges.listed:
            return self.listed(body)
        self.lines(*(f"bound{k} = tl.load(table + block * 4 + {k})" for k in range(4)))
        spans = [(0, 1, True), (1, 2, False), (2, 3, True)] if self.ranges.part else [(1, 2, False)]
        for first, last, masked in spans if self.ranges.full else [(0, 3, True)]:
            self.loop(body, f"for step in range(bound{first}, bound{last}):", masked)

    def listed(self, body: list[str]) -> None:
        """One loop for blocks that are seen in part and one for those seen in full, as `lists` has them."""
        blocks = (self.blocks_of_rows, self.blocks_of_keys)
        along, others = blocks if self.along == "j" else blocks[::-1]
        batch, heads = (place if n > 1 else "0" for place, n in zip("bh", self.attention.masks, strict=True))
        mask = f"({batch} * {self.attention.masks[1]} + {heads}) * {along} + block"
        self.lines(f"seen = lists + ({mask}) * {2 * others + 2}")
        for start, masked in ((0, True), (others + 1, False)):
            loop = f"for place in range(0, tl.load(seen + {start})):"
            self.loop([f"step = tl.load(seen + {start + 1} + place)", *body], loop, masked)

    def loop(self, body: list[str], head: str, masked: bool) -> None:
        em, outer, given = self.em, self.em.outer, self.attention.scores
        em.inner = Scope(outer.indent + "    ")
        em.inner.memo |= {given.score: "score", given.tangent: "change"}
        for text in body:
            em.inner.lines += [em.inner.indent + line for line in self.written(text, masked)]
        outer.line(head)
        outer.lines += em.inner.lines
        em.inner = None

    def written(self, text: str, masked: bool) -> list[str]:
        """The line itself, or what a word stands for. `@power` and `@gradient`: of a score, and of a gradient;
        `@shown`: what is seen, with a condition for places that exist; `@hide NAME OTHER`: what is not seen becomes
        another number; `@sum K`: a gradient of an element of a table."""
        word, _, rest = text.partition(" ")
        return self.forms[word](rest, masked) if word in self.forms else [text]

    def _power(self, _: str, masked: bool) -> list[str]:
        value = self.em.value(self.attention.scores.value)
        return [
            *self.asserted(self.attention.scores.checks),
            f"power = tl.broadcast_to({value} * {_LOG2E!r}, score.shape)",
        ]

    def _gradient(self, _: str, masked: bool) -> list[str]:
        gradient = self.attention.scores.gradient
        assert gradient is not None
        return [f"gradient = tl.broadcast_to({self.em.value(gradient)}, score.shape)"]

    def _shown(self, exists: str, masked: bool) -> list[str]:
        if not masked:
            return []
        value, inside = self.em.value(self.attention.scores.mask), f" & ({exists})" if exists else ""
        checks = self.asserted(self.attention.scores.mask_checks)
        return [*checks, f"shown = tl.broadcast_to({value}{inside}, score.shape)"]

    def _hide(self, names: str, masked: bool) -> list[str]:
        hidden, _, other = names.partition(" ")
        return [f"{hidden} = tl.where(shown, {hidden}, {other})"] if masked else []

    def asserted(self, checks: Iterable[tuple[Expr, str]]) -> list[str]:
        """The forward pass asks; those after it see the same places."""
        return [f"tl.device_assert({self.em.value(c)}, {message!r})" for c, message in checks if self.asks]

    # ------------------------------------------------------------ the whole kernel

    def template(self, results: dict[str, Result], programs: int, tables: dict[str, Strides]) -> Template:
        """`results` by the name of their pointer; `tables`: how what the functions read is laid out."""
        a = self.attention
        given = {"query": (a.dtype, a.query), "key": (a.dtype, a.key), "value": (a.dtype, a.value)}
        if self.tangent is not None:
            plain = torch.float32, (a.heads * a.rows, a.rows, 1)
            given |= {"tangent": (a.dtype, self.tangent), "logarithms": plain, "delta": plain}
        given |= self.tables(tables)
        if self.ranges.listed:
            given["lists"] = torch.int32, (1,)
        return self.kernel(given, results, programs)

    def tables(self, tables: dict[str, Strides]) -> dict[str, tuple[torch.dtype, Strides]]:
        """What the functions read, by the name of its pointer."""
        return {f"p{k}": (t.dtype, tables[t.name]) for k, t in enumerate(self.attention.scores.tables)}

    def kernel(
        self, given: dict[str, tuple[torch.dtype, Strides]], results: dict[str, Result], programs: int
    ) -> Template:
        """Of what has been written. `given` are types and layouts by the name of the pointer."""
        dtypes = [dtype for dtype, _ in given.values()] + [result.type for result in results.values()]
        arguments = (*(f"*{types.TYPES[dtype][1]}" for dtype in dtypes), "*i32")
        body = "\n".join(self.em.outer.lines)
        helpers = "".join(HELPERS[name] for name in helpers_of(body))
        text = f"{_HEAD}{helpers}\n\n@triton.jit\ndef K({', '.join([*given, *results, 'table'])}):\n{body}\n"
        digest = hashlib.sha256(f"{arguments}{self.blocks}{text}".encode()).hexdigest()[:16]
        symbol = f"{self.name}_{digest}"
        launch = GpuLaunch(
            arguments, self.blocks.warps, checked="tl.device_assert(" in body, stages=self.blocks.stages
        )
        return Template(
            symbol, text.replace("def K(", f"def {symbol}("), tuple(strides for _, strides in given.values()),
            tuple(results.values()), (programs,), table=self.ranges.table, launch=launch,
        )  # fmt: skip


def tile_width(width: int) -> int:
    """A power of 2 that tensor cores multiply."""
    return max(16, 1 << (width - 1).bit_length())


def head(pointer: str, strides: Strides, which: str) -> str:
    """Where a head begins."""
    return f"{pointer} + b.to(tl.int64) * {strides[0]} + {which}.to(tl.int64) * {strides[1]}"


def places(name: str, seen: str, numbers: str, size: int, block: int) -> list[str]:
    """A block's places, and as functions see them: those exist."""
    return [f"{name} = {numbers}", f"{seen} = tl.minimum({name}, {size - 1})" if size % block else f"{seen} = {name}"]

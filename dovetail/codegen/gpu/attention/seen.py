"""Which blocks of places a mask shows, found out by asking it for every place: tensors are not known before.

First what is seen of squares of places, a byte each; then, for the blocks of a kernel, lists of those that are seen in
part and of those seen in full. For each block of the side that programs share, two lists of the other side's: how many
there are, then which.
"""

from __future__ import annotations

import torch

from dovetail.codegen.gpu.attention.writer import AttentionWriter, places
from dovetail.ir.attention import Attention, Ranges, Strides, Tiles
from dovetail.ir.template import Result, Template

#: Squares that a program looks at, one after the other.
_SQUARES = 8
#: Some of a square is seen; some is hidden, as are places that do not exist.
_SEEN, _HIDDEN = 1, 2
_ASKING = Ranges((), False, True)


def squares(attention: Attention, side: int, tables: dict[str, Strides]) -> Template:
    """From the tables that say what is seen, or the query where none do: a byte for each square of a mask, by rows."""
    writer = AttentionWriter("attention_squares", attention, Tiles(side, side, 4, 1), _ASKING, "j")
    a, down, along = attention, writer.blocks_of_rows, writer.blocks_of_keys
    parts, heads = -(-along // _SQUARES), a.masks[1]
    writer.lines(
        "program = tl.program_id(0)", f"line = program // {parts}", f"first = program % {parts} * {_SQUARES}",
        f"block = line % {down}", f"b = line // {down} // {heads}", f"h = line // {down} % {heads}",
        *places("rows", "i", f"block * {side} + tl.arange(0, {side})[:, None]", a.rows, side),
        f"score = tl.full(({side}, {side}), 0.0, tl.float32)",
    )  # fmt: skip
    exist = " & ".join(f"({text})" for text in (writer.rows_exist, writer.columns_exist) if text)
    body = [
        *places("columns", "j", f"step * {side} + tl.arange(0, {side})[None, :]", a.keys, side),
        f"@shown {exist}", "truth = shown.to(tl.int32)",
        f"some = {_SEEN} * tl.reduce(tl.reduce(truth, 1, _max), 0, _max)",
        f"less = {_HIDDEN} * (1 - tl.reduce(tl.reduce(truth, 1, _min), 0, _min))",
        f"tl.store(squares + line * {along} + step, (some + less).to(tl.int8))",
    ]  # fmt: skip
    writer.loop(body, f"for step in range(first, tl.minimum(first + {_SQUARES}, {along})):", True)
    lines = a.masks[0] * heads * down
    result = Result("int8", (lines, along), (along, 1))
    read = {t.name for t in a.scores.mask_tables}
    given = {
        p: each for (p, each), t in zip(writer.tables(tables).items(), a.scores.tables, strict=True) if t.name in read
    }
    return writer.kernel(given or {"query": (a.dtype, a.query)}, {"squares": result}, lines * parts)


def lists(attention: Attention, blocks: Tiles, side: int, across: bool) -> Template:
    """From those squares: the lists for blocks of that many rows and keys; `across`: for each block of keys."""
    writer = AttentionWriter("attention_lists", attention, Tiles(blocks.rows, blocks.keys, 1, 1), _ASKING, "j")
    steps = blocks.rows // side, blocks.keys // side
    down, along = -(-attention.rows // side), -(-attention.keys // side)
    blocks_of = writer.blocks_of_rows, writer.blocks_of_keys
    share, others = blocks_of[::-1] if across else blocks_of
    writer.lines(
        "program = tl.program_id(0)", f"mask = program // {share}", f"block = program % {share}",
        f"other = tl.arange(0, {max(2, 1 << (others - 1).bit_length())})", "found = other * 0",
    )  # fmt: skip
    row, column = ("other", "block") if across else ("block", "other")
    for r in range(steps[0]):
        for c in range(steps[1]):
            place = f"(mask * {down} + {row} * {steps[0]} + {r}) * {along} + {column} * {steps[1]} + {c}"
            inside = f"({row} * {steps[0]} + {r} < {down}) & ({column} * {steps[1]} + {c} < {along})"
            writer.lines(f"found |= tl.load(squares + {place}, mask={inside}, other={_HIDDEN}).to(tl.int32)")
    length = 2 * others + 2
    for start, kind in ((0, _SEEN | _HIDDEN), (others + 1, _SEEN)):
        writer.lines(
            f"chosen = ((found == {kind}) & (other < {others})).to(tl.int32)",
            "rank = tl.associative_scan(chosen, 0, _sum)",
            f"tl.store(lists + program * {length} + {start}, tl.reduce(chosen, 0, _sum))",
            f"tl.store(lists + program * {length} + {start} + rank, other, mask=chosen != 0)",
        )
    programs = attention.masks[0] * attention.masks[1] * share
    result = Result("int32", (programs * length,), (1,))
    return writer.kernel({"squares": (torch.int8, (along, 1))}, {"lists": result}, programs)

"""The forward pass: a program has a block of rows, and goes through the keys that they see."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.codegen.gpu.attention.writer import AttentionWriter, head, places
from dovetail.codegen.gpu.types import name
from dovetail.ir.attention import Attention, Ranges, Strides, Tiles
from dovetail.ir.template import Result, Template


def forward(attention: Attention, blocks: Tiles, ranges: Ranges, out: Strides, tables: dict[str, Strides]) -> Template:
    """From query, key, value and the functions' tables: rows laid out as `out`, the logarithm of each one's sum and its
    largest score, both to base 2."""
    a, writer = attention, AttentionWriter("attention_forward", attention, blocks, ranges, "j")
    block_of_rows(writer)
    writer.lines(
        f"x = {writer.tile('queries', a.query, 'rows', 'wide', writer.rows_exist)}",
        f"most = tl.full(({blocks.rows},), float('-inf'), tl.float32)",
        f"total = tl.full(({blocks.rows},), 0.0, tl.float32)",
        f"found = tl.full(({blocks.rows}, {writer.value_width}), 0.0, tl.float32)",
    )
    writer.loops(_step(writer))
    mask = writer.mask(writer.rows_exist, "wide_value")
    flat = f", mask=flat < {a.rows}" if writer.rows_exist else ""
    writer.lines(
        "empty = total == 0.0",
        "total = tl.where(empty, 1.0, total)",
        "found = found / total[:, None]",
        "start = tl.where(most == float('-inf'), 0.0, most)",
        "logarithm = tl.where(empty, float('-inf'), start + tl.log2(total))",
        f"outs = {head('out', out, 'h')}",
        f"tl.store(outs + rows * {out[2]} + wide_value * {out[3]}, found.to({name(a.dtype)}){mask})",
        f"tl.store(logarithms + head * {a.rows} + flat, logarithm{flat})",
        f"tl.store(largest + head * {a.rows} + flat, most{flat})",
    )
    sizes = (a.batch, a.heads, a.rows)
    plain = Result("float32", sizes, (a.heads * a.rows, a.rows, 1))
    results = {"out": Result(str(a.dtype)[6:], (*sizes, a.value_width), out), "logarithms": plain, "largest": plain}
    return writer.template(results, row_programs(writer), tables)


def row_programs(writer: AttentionWriter) -> int:
    """One for each block of rows of a head."""
    return writer.blocks_of_rows * writer.attention.batch * writer.attention.heads


def block_of_rows(writer: AttentionWriter) -> None:
    """Which block of rows, of which head. The last ones come first: where some see more, those do."""
    a, count = writer.attention, writer.blocks_of_rows
    writer.lines(
        "program = tl.program_id(0)", f"block = {count - 1} - program % {count}", f"head = program // {count}",
        f"b = head // {a.heads}", f"h = head % {a.heads}", f"group = h // {a.heads // a.groups}",
        f"flat = block * {writer.blocks.rows} + tl.arange(0, {writer.blocks.rows})",
        *places("rows", "i", "flat[:, None]", a.rows, writer.blocks.rows),
        f"queries = {head('query', a.query, 'h')}", *widths(writer),
        f"keys = {head('key', a.key, 'group')}", f"values = {head('value', a.value, 'group')}",
    )  # fmt: skip


def widths(writer: AttentionWriter) -> list[str]:
    """Along a tile's second dimension and along its first."""
    return [
        f"{name} = tl.arange(0, {width})[{side}]"
        for side, prefix in (("None, :", "wide"), (":, None", "down"))
        for name, width in ((prefix, writer.width), (f"{prefix}_value", writer.value_width))
    ]


def _step(writer: AttentionWriter) -> Iterator[str]:
    """A block of keys."""
    a = writer.attention
    yield from block_of_keys(writer)
    yield "above = tl.maximum(most, tl.reduce(power, 1, _max))"
    yield "start = tl.where(above == float('-inf'), 0.0, above)"
    yield "weights = tl.exp2(power - start[:, None])"
    yield "less = tl.exp2(most - start)"
    yield "total = total * less + tl.reduce(weights, 1, _sum)"
    exists = f"across < {a.keys}" if writer.columns_exist else ""
    yield f"across = step * {writer.blocks.keys} + tl.arange(0, {writer.blocks.keys})[:, None]"
    yield f"y = {writer.tile('values', a.value, 'across', 'wide_value', exists)}"
    yield f"found = tl.dot(weights.to({name(a.dtype)}), y, found * less[:, None], {writer.precision})"
    yield "most = above"


def block_of_keys(writer: AttentionWriter) -> Iterator[str]:
    """Scores of a block of rows with one of keys, and the power of 2 that each one's exponential is."""
    a = writer.attention
    start = f"step * {writer.blocks.keys} + tl.arange(0, {writer.blocks.keys})[None, :]"
    yield from places("columns", "j", start, a.keys, writer.blocks.keys)
    yield f"k = {writer.tile('keys', a.key, 'columns', 'down', writer.columns_exist)}"
    yield f"score = tl.dot(x, k, {writer.precision}) * {a.scale!r}"
    yield "@power"
    yield f"@shown {writer.columns_exist}"
    yield "@hide power float('-inf')"

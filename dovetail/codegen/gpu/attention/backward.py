"""The backward pass: one kernel for the query's gradient, by blocks of rows, and one for those of key and value.

Weights are computed again from the logarithms of their sums. `delta` is what each row's gradient has in common: the sum
of its own products, less the gradient of its logarithm.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.codegen.gpu.attention.forward import block_of_keys, block_of_rows, row_programs, widths
from dovetail.codegen.gpu.attention.sums import Sums
from dovetail.codegen.gpu.attention.writer import AttentionWriter, head, places
from dovetail.codegen.gpu.types import name
from dovetail.ir.attention import Attention, Ranges, Strides, Tiles
from dovetail.ir.template import Result, Template


def query_gradient(
    attention: Attention, blocks: Tiles, ranges: Ranges, tangent: Strides, out: Strides, tables: dict[str, Strides]
) -> Template:
    """From query, key, value, the rows' gradient (`tangent`), logarithms, delta and the functions' tables; laid out as
    `out`. Tables that are learned have theirs after it."""
    a, writer = attention, AttentionWriter("attention_query_gradient", attention, blocks, ranges, "j", tangent)
    block_of_rows(writer)
    flat = f", mask=flat < {a.rows}, other=0.0" if writer.rows_exist else ""
    writer.lines(
        f"tangents = {head('tangent', tangent, 'h')}",
        f"x = {writer.tile('queries', a.query, 'rows', 'wide', writer.rows_exist)}",
        f"z = {writer.tile('tangents', tangent, 'rows', 'wide_value', writer.rows_exist)}",
        f"start = tl.load(logarithms + head * {a.rows} + flat{flat})[:, None]",
        "start = tl.where(start == float('-inf'), 0.0, start)",
        f"common = tl.load(delta + head * {a.rows} + flat{flat})[:, None]",
        f"found = tl.full(({blocks.rows}, {writer.width}), 0.0, tl.float32)",
    )
    sums = Sums(writer)
    sums.begin()
    writer.loops([*_keys(writer), *sums.steps()])
    sums.end()
    mask = writer.mask(writer.rows_exist, "wide")
    writer.lines(
        f"outs = {head('out', out, 'h')}",
        f"found = (found * {a.scale!r}).to({name(a.dtype)})",
        f"tl.store(outs + rows * {out[2]} + wide * {out[3]}, found{mask})",
    )
    results = {"out": Result(str(a.dtype)[6:], (a.batch, a.heads, a.rows, a.width), out)} | sums.results()
    return writer.template(results, row_programs(writer), tables)


def _keys(writer: AttentionWriter) -> Iterator[str]:
    """A block of keys."""
    a = writer.attention
    yield from block_of_keys(writer)
    yield "weights = tl.exp2(power - start)"
    yield f"y = {writer.tile('values', a.value, 'columns', 'down_value', writer.columns_exist)}"
    yield f"change = weights * (tl.dot(z, y, {writer.precision}) - common)"
    yield "@gradient"
    yield "@hide gradient 0.0"
    yield f"found = tl.dot(gradient.to({name(a.dtype)}), tl.trans(k), found, {writer.precision})"


def key_gradients(
    attention: Attention, blocks: Tiles, ranges: Ranges, tangent: Strides, outs: tuple[Strides, Strides],
    tables: dict[str, Strides],
) -> Template:  # fmt: skip
    """Of the same: the gradients of key and value, laid out as `outs`. A head of the key has those of all its heads of
    the query."""
    a, writer = attention, AttentionWriter("attention_key_gradients", attention, blocks, ranges, "i", tangent)
    share, count = a.heads // a.groups, writer.blocks_of_keys
    exists = f"down_keys < {a.keys}" if writer.columns_exist else ""
    writer.lines(
        "program = tl.program_id(0)", f"block = program % {count}", f"pair = program // {count}",
        f"b = pair // {a.groups}", f"group = pair % {a.groups}", *widths(writer),
        *places("down_keys", "j", f"block * {blocks.keys} + tl.arange(0, {blocks.keys})[:, None]", a.keys, blocks.keys),
        f"keys = {head('key', a.key, 'group')}", f"values = {head('value', a.value, 'group')}",
        f"k = {writer.tile('keys', a.key, 'down_keys', 'wide', exists)}",
        f"y = {writer.tile('values', a.value, 'down_keys', 'wide_value', exists)}",
        f"found = tl.full(({blocks.keys}, {writer.width}), 0.0, tl.float32)",
        f"found_value = tl.full(({blocks.keys}, {writer.value_width}), 0.0, tl.float32)",
    )  # fmt: skip
    with writer.repeated(f"for member in range({share}):" if share > 1 else ""):
        writer.lines(
            f"h = group * {share} + member" if share > 1 else "h = group",
            f"head = b * {a.heads} + h",
            f"queries = {head('query', a.query, 'h')}",
            f"tangents = {head('tangent', tangent, 'h')}",
        )
        writer.loops(_rows(writer, tangent))
    for result, strides, found, columns in (
        ("key_out", outs[0], f"found * {a.scale!r}", "wide"), ("value_out", outs[1], "found_value", "wide_value"),
    ):  # fmt: skip
        writer.lines(
            f"{result}s = {head(result, strides, 'group')}",
            f"tl.store({result}s + down_keys * {strides[2]} + {columns} * {strides[3]}, "
            f"({found}).to({name(a.dtype)}){writer.mask(exists, columns)})",
        )
    sizes, dtype = (a.batch, a.groups, a.keys), str(a.dtype)[6:]
    widths_of = {"key_out": a.width, "value_out": a.value_width}
    results = {n: Result(dtype, (*sizes, w), s) for (n, w), s in zip(widths_of.items(), outs, strict=True)}
    return writer.template(results, count * a.batch * a.groups, tables)


def _rows(writer: AttentionWriter, tangent: Strides) -> Iterator[str]:
    """A block of rows; its scores lie in columns."""
    a, blocks = writer.attention, writer.blocks
    start = f"step * {blocks.rows} + tl.arange(0, {blocks.rows})"
    yield from places("columns", "i", f"{start}[None, :]", a.rows, blocks.rows)
    exists = f"columns < {a.rows}" if writer.rows_exist else ""
    yield f"x = {writer.tile('queries', a.query, 'columns', 'down', exists)}"
    yield f"score = tl.dot(k, x, {writer.precision}) * {a.scale!r}"
    yield "@power"
    yield f"@shown {exists}"
    yield "@hide power float('-inf')"
    other = f", mask={exists}, other=0.0" if exists else ""
    yield f"start = tl.load(logarithms + head * {a.rows} + columns{other})"
    yield "start = tl.where(start == float('-inf'), 0.0, start)"
    yield "weights = tl.exp2(power - start)"
    yield f"across = {start}[:, None]"
    yield f"z = {writer.tile('tangents', tangent, 'across', 'wide_value', f'across < {a.rows}' if exists else '')}"
    yield f"found_value = tl.dot(weights.to({name(a.dtype)}), z, found_value, {writer.precision})"
    yield f"common = tl.load(delta + head * {a.rows} + columns{other})"
    yield f"change = weights * (tl.dot(y, tl.trans(z), {writer.precision}) - common)"
    yield "@gradient"
    yield "@hide gradient 0.0"
    yield f"found = tl.dot(gradient.to({name(a.dtype)}), tl.trans(x), found, {writer.precision})"

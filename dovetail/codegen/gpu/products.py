"""The kernel of a product of float32 matrices, as three products of TF32 whose sum has float32's accuracy.

A float32 is the sum of a TF32 and a rest, which as a TF32 is off by 2**-22. The product of both rests is left out. What
tensor cores add up is rounded coarsely, so that only `deep` elements are added there, and these sums in float32.

Where a number is infinite, or becomes so when it is rounded, one of the three products is NaN. A tile that has any is
computed again in float32, element by element.
"""

from __future__ import annotations

import hashlib

from dovetail.ir.kernel import GpuLaunch
from dovetail.ir.products import Product
from dovetail.ir.template import Result, Template

_TEXT = """\
import triton
import triton.language as tl

@triton.jit
def _most(x, y):
    return tl.maximum(x, y)

@triton.jit
def K(a, b, {bias}c, table):
    M = tl.load(table)
    N = tl.load(table + 1)
    length = tl.load(table + 2) * 4
    step = tl.load(table + 3) * 4
    of_batch = tl.load(table + 4) * 4
    part = tl.load(table + 5) * {deep}
    parts = tl.load(table + 6)
    padded = tl.load(table + 7) * {deep}
    rest = tl.load(table + 8) * {deep}
    down = (M + {rows} - 1) // {rows}
    across = (N + {columns} - 1) // {columns}
    program = tl.program_id(0)
    which = program // (down * across)
    tile = program % (down * across)
    band = tile // (8 * across)
    high = tl.minimum(down - band * 8, 8)
    row = (band * 8 + tile % (8 * across) % high) * {rows} + tl.arange(0, {rows})
    column = (tile % (8 * across) // high) * {columns} + tl.arange(0, {columns})
    here = {row_exists}
    there = tl.where(column < N, column, 0)
    k = tl.arange(0, {deep})
    first = which % parts * part
    last = tl.minimum(first + part, padded)
    left_matrix = a + which // parts * of_batch
    right_matrix = b + which // parts * N * padded
    left = left_matrix + {left}
    high_right = right_matrix + there[None, :] * padded + (first + k)[:, None]
    low_right = high_right + rest
    found = tl.full(({rows}, {columns}), 0.0, tl.float32)
    for start in range(first, last, {deep}):
        x = tl.load(left{mask})
        y = tl.load(high_right)
        z = tl.load(low_right)
        high_x = ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        sum = tl.dot(x - high_x, y, input_precision='tf32')
        sum = tl.dot(high_x, z, sum, input_precision='tf32')
        found += tl.dot(high_x, y, sum, input_precision='tf32')
        left += {next}
        high_right += {deep}
        low_right += {deep}
    wrong = tl.reduce(tl.reduce((found != found).to(tl.int32), 1, _most), 0, _most)
    if wrong > 0:
        found = tl.full(({rows}, {columns}), 0.0, tl.float32)
        for j in range(first, tl.minimum(last, length)):
            place = right_matrix + there * padded + j
            y = tl.load(place) + tl.load(place + rest)
            found += tl.load(left_matrix + {element})[:, None] * y[None, :]
{add}    exist = (row < M)[:, None] & (column < N)[None, :]
    tl.store(c + which * M * N + {place}, found, mask=exist)
"""


def template(product: Product) -> Template:
    """Of a, b and perhaps what is added to each of the result's last dimension, to `(batch, parts, m, n)`."""
    p, tiles = product, product.tiles
    along, across = ("k[None, :]", "here[:, None]") if p.by_rows else ("here[:, None]", "k[None, :]")
    tail = "" if p.k % tiles.deep == 0 else ", mask=start + k[None, :] < length, other=0.0"
    aligned = "tl.max_contiguous(tl.multiple_of({}, 4), 4)"
    exists = "tl.where(row < M, row, 0)"
    bias = "row" if p.turned else "column"
    some = ("N", "[None, :]") if not p.turned else ("M", "[:, None]")
    text = _TEXT.format(
        rows=tiles.rows, columns=tiles.columns, deep=tiles.deep, mask=tail,
        bias="bias, " if p.bias else "",
        row_exists=exists if p.by_rows else aligned.format(exists),
        left=f"{across} * step + (first + k)[None, :]" if p.by_rows else f"{along} + (first + k)[None, :] * step",
        next=tiles.deep if p.by_rows else f"{tiles.deep} * step",
        element="here * step + j" if p.by_rows else "here + j * step",
        add=f"    found += tl.load(bias + {bias}, mask={bias} < {some[0]}, other=0.0){some[1]}\n" if p.bias else "",
        place="row[:, None] + column[None, :] * M" if p.turned else "row[:, None] * N + column[None, :]",
    )  # fmt: skip
    symbol = f"product_{hashlib.sha256(f'{tiles}{text}'.encode()).hexdigest()[:16]}"
    b = (p.batch * p.n * p.padded, p.n * p.padded, p.padded, 1)
    sizes = (p.batch, p.parts, *((p.n, p.m) if p.turned else (p.m, p.n)))
    result = Result("float32", sizes, (p.parts * p.m * p.n, p.m * p.n, sizes[3], 1))
    count = -(-p.m // tiles.rows) * -(-p.n // tiles.columns) * p.batch * p.parts
    deep = tiles.deep
    table = (
        p.m, p.n, p.k // 4, p.step // 4, p.of_batch // 4, p.part // deep, p.parts, p.padded // deep, b[0] // deep,
    )  # fmt: skip
    strides = (p.strides, b, *[(1,)] * p.bias)
    launch = GpuLaunch((*["*fp32"] * (len(strides) + 1), "*i32"), tiles.warps, stages=tiles.stages)
    text = text.replace("def K(", f"def {symbol}(")
    return Template(symbol, text, strides, (result,), (count,), table=table, launch=launch)

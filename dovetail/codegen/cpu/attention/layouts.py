"""What is multiplied as it lies in a block: rows of attention side by side in lanes, in float32.

    query[row, d]  ->  block[d, row]              block[d, row]  ->  out[row, d]
"""

from __future__ import annotations

import torch

from dovetail.codegen.cpu.attention.function import KernelFunction
from dovetail.codegen.cpu.attention.products import Tile
from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.lanes import Lanes


def packed(name: str, tile: Tile, dtype: torch.dtype, halves: bool) -> KernelFunction:
    """`void @NAME(ptr from, i64 step, ptr to, i64 rows, i64 width)`: rows beyond the last are that one again.

    A block has as many lines as the width to the next multiple of lanes.
    """
    made = KernelFunction(name, {"from": "ptr", "step": "i64", "to": "ptr", "rows": "i64", "width": "i64"}, halves)
    w, lanes, given = made.w, tile.lanes, made.parameters
    last = w.binary("sub", given["rows"], made.number(1))

    def vector(first: Val, _: list[str]) -> list[str]:
        starts = []
        for k in range(lanes):
            number = w.minmax("min", w.binary("add", first, made.number(k)), last, "int")
            starts.append(made.at(given["from"], number, given["step"], dtype))

        def square(d: Val, _: list[str]) -> list[str]:
            exist = made.before(lanes, w.binary("sub", given["width"], d))
            loaded = [made.load(made.at(start, d, dtype=dtype), lanes, 0, dtype, exist) for start in starts]
            out = made.at(made.at(given["to"], d, tile.columns), first)
            for k, line in enumerate(transposed(w, loaded)):
                made.store(line, out, k * tile.columns)
            return []

        made.b.loop(made.number(0), given["width"], str(lanes), [], square)
        return []

    made.b.loop(made.number(0), made.number(tile.columns), str(lanes), [], vector, guarded=False)
    return made


def unpacked(name: str, tile: Tile, dtype: torch.dtype, halves: bool) -> KernelFunction:
    """`void @NAME(ptr from, ptr factors, ptr to, i64 step, i64 rows, i64 width)`: each row times its factor."""
    names = {"from": "ptr", "factors": "ptr", "to": "ptr", "step": "i64", "rows": "i64", "width": "i64"}
    made = KernelFunction(name, names, halves)
    w, lanes, given = made.w, tile.lanes, made.parameters

    def vector(first: Val, _: list[str]) -> list[str]:
        factors = made.load(made.at(given["factors"], first), lanes)

        def square(d: Val, _: list[str]) -> list[str]:
            exist = made.before(lanes, w.binary("sub", given["width"], d))
            line = made.at(made.at(given["from"], d, tile.columns), first)
            loaded = [made.load(line, lanes, k * tile.columns) for k in range(lanes)]
            rows = transposed(w, [w.binary("fmul", each, factors) for each in loaded])
            for k, row in enumerate(rows):
                number = w.binary("add", first, made.number(k))
                some = w.compare("icmp slt", number, given["rows"])
                mask = w.both(exist, w.splat(some, lanes))
                start = made.at(given["to"], number, given["step"], dtype)
                made.store(row, made.at(start, d, dtype=dtype), 0, dtype, mask)
            return []

        made.b.loop(made.number(0), given["width"], str(lanes), [], square)
        return []

    made.b.loop(made.number(0), given["rows"], str(lanes), [], vector)
    return made


def widened(name: str, lanes: int, dtype: torch.dtype, halves: bool) -> KernelFunction:
    """`void @NAME(ptr from, i64 step, ptr to, i64 rows, i64 width)`: the same numbers in float32, without gaps."""
    made = KernelFunction(name, {"from": "ptr", "step": "i64", "to": "ptr", "rows": "i64", "width": "i64"}, halves)
    given = made.parameters

    def row(number: Val, _: list[str]) -> list[str]:
        start = made.at(given["from"], number, given["step"], dtype)
        out = made.at(given["to"], number, given["width"])

        def vector(d: Val, _: list[str]) -> list[str]:
            exist = made.before(lanes, made.w.binary("sub", given["width"], d))
            loaded = made.load(made.at(start, d, dtype=dtype), lanes, 0, dtype, exist)
            made.store(loaded, made.at(out, d), mask=exist)
            return []

        made.b.loop(made.number(0), given["width"], str(lanes), [], vector)
        return []

    made.b.loop(made.number(0), given["rows"], "1", [], row)
    return made


def transposed(w: Lanes, rows: list[Val]) -> list[Val]:
    """As many vectors as lanes. Interleaving the first half of them with the second, log2(lanes) times, does it."""
    lanes = len(rows)
    orders = [[half + k // 2 + k % 2 * lanes for k in range(lanes)] for half in (0, lanes // 2)]
    texts = [f"<{lanes} x i32> <{', '.join(f'i32 {k}' for k in order)}>" for order in orders]
    for _ in range(lanes.bit_length() - 1):
        pairs = list(zip(rows[: lanes // 2], rows[lanes // 2 :], strict=True))
        rows = [
            w.b.shared(f"shufflevector {a.typed}, {b.typed}, {text}", a.element, lanes, (a, b))
            for a, b in pairs
            for text in texts
        ]
    return rows

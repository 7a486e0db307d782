"""Products of small matrices whose columns lie in lanes, as one function of a module each.

    void @NAME(ptr a, i64 down, i64 along, ptr b, ptr c, i64 rows, i64 terms[, ptr factors])

    c[m, n] = sum over k of a[m * down + k * along] * b[k, n]            or, with factors,
    c[m, n] = c[m, n] * factors[n] + the sum

`b` and `c` are as wide as a block, without gaps. A tile of `c` stays in registers while one element of `a` after the
other is multiplied with whole vectors of `b`: Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication" (2008).
"""

from __future__ import annotations

from dovetail.codegen.cpu.attention.function import KernelFunction
from dovetail.codegen.cpu.builder import Val
from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class Tile:
    """`height` rows by `vectors` of so many lanes: as many accumulators as registers hold beside what is multiplied."""

    height: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """Of a block."""
        return self.vectors * self.lanes


def product(name: str, tile: Tile, scaled: bool) -> KernelFunction:
    """The function's text; `scaled`: with factors."""
    names = ["a", "down", "along", "b", "c", "rows", "terms", *["factors"] * scaled]
    made = KernelFunction(name, {n: "i64" if n in ("down", "along", "rows", "terms") else "ptr" for n in names})
    given, lanes = made.parameters, tile.lanes
    factors: list[Val] = []
    if scaled:
        factors = [made.load(given["factors"], lanes, n * lanes) for n in range(tile.vectors)]
    rest = made.w.binary("urem", given["rows"], made.number(tile.height))
    whole = made.w.binary("sub", given["rows"], rest)
    single = Tile(1, tile.vectors, lanes)
    for height, start, end in ((tile, made.number(0), whole), (single, whole, given["rows"])):

        def rows(row: Val, _: list[str], height: Tile = height) -> list[str]:
            _tile(made, height, row, factors)
            return []

        made.b.loop(start, end, str(height.height), [], rows)
    return made


def _tile(made: KernelFunction, tile: Tile, row: Val, factors: list[Val]) -> None:
    b, w, lanes, given = made.b, made.w, tile.lanes, made.parameters
    places = [(m, n) for m in range(tile.height) for n in range(tile.vectors)]
    first = made.at(given["a"], row, given["down"])
    rows = [made.at(first, given["down"], m) for m in range(tile.height)]
    out = made.at(given["c"], row, tile.columns)

    def step(k: Val, names: list[str]) -> list[str]:
        along = w.binary("mul", k, given["along"])
        line = made.at(given["b"], k, tile.columns)
        vectors = [made.load(line, lanes, n * lanes) for n in range(tile.vectors)]
        factor = [w.splat(made.load(made.at(start, along)), lanes) for start in rows]
        sums = [Val(text, "float", lanes, b.depth) for text in names]
        following = [
            w.intrinsic("fma", factor[m], vectors[n], old)
            for (m, n), old in zip(places, sums, strict=True)
        ]  # fmt: skip
        return [v.text for v in following]

    zero = w.splat(w.number(0.0, "float"), lanes)
    carried = [(zero.type, zero.text) for _ in places]
    sums = b.loop(made.number(0), given["terms"], "1", carried, step, guarded=False)
    for (m, n), text in zip(places, sums, strict=True):
        found, at = Val(text, "float", lanes, b.depth), m * tile.columns + n * lanes
        if factors:
            found = w.intrinsic("fma", made.load(out, lanes, at), factors[n], found)
        made.store(found, out, at)

"""What the program computes of sizes in plain Python and decides by it: `math.sqrt(x.shape[0] / 2)`, `x.shape[0] & 1`.

Capture writes such numbers down as Python text over the paths to sizes. Here they become expressions, which a graph
computes and a signature checks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields
from typing import Any

from dovetail import guards
from dovetail.errors import Unsupported
from dovetail.exporting import expressions
from dovetail.exporting.buffers import CODE
from dovetail.exporting.expressions import Expression, Unknown
from dovetail.exporting.signature import Condition
from dovetail.ir import dims
from dovetail.ir.captured import Captured
from dovetail.ir.dims import Symbol
from dovetail.ir.guard import Guard, GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Bound, Computed, Source

NAMES = {id(function): name for name, function in expressions.OPERATIONS.items()}
OPPOSITE = {"==": "!=", "!=": "==", ">=": "<", "<": ">=", "<=": ">", ">": "<="}


@dataclass
class ExportFormulas:
    """`names` has the sizes that differ from call to call, by what their symbols are called; `numbers` are the ints
    that do, by the paths to them."""

    captured: Captured
    names: Mapping[str, Expression]
    numbers: Mapping[str, Any]
    known: dict[Source, Expression] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for origin in self.captured.symbols.values():
            if not isinstance(origin.source, Computed):
                self.known[origin.source] = self.of_dim(origin.dim)

    def of_dim(self, dim: Any) -> Expression:
        """A size, in terms of the fewest others."""
        resolved = self.captured.sizes.resolve(dim)
        return resolved if isinstance(resolved, int) else self.of_text(str(resolved), dims.symbols(resolved))

    def of_text(self, text: str, symbols: Iterable[Symbol]) -> Expression:
        """The expression that a text with these symbols spells, some of which were computed of others."""
        computed = {s.name: self.of(self.captured.symbols[s].source) for s in symbols if s.name not in self.names}
        return expressions.of_text(text, {**self.names, **computed})

    def of(self, source: Source) -> Expression:
        """Raises Unsupported for what no expression says."""
        if source.name() in self.numbers:
            return self.of_dim(self.numbers[source.name()])
        if source not in self.known:
            if not isinstance(source, Computed):
                raise _refused(source)
            try:
                self.known[source] = expressions.of_text(*self._text(source))
            except (Unknown, SyntaxError) as error:
                raise _refused(source) from error
        return self.known[source]

    def _text(self, source: Computed) -> tuple[str, dict[str, Expression]]:
        """The text, and what its names are: numbers made of sizes, and functions."""
        found = {f"_{k}": self._operand(operand) for k, operand in enumerate(source.operands)}
        return source.template.format(*found).strip(), found

    def _operand(self, source: Source) -> Expression:
        if isinstance(source, Bound):
            return NAMES.get(id(self.captured.bound[source.index]), "")
        return self.of(source)

    def conditions(self) -> Iterator[Condition]:
        """What must hold beside the facts about sizes. Raises Unsupported for what no condition says."""
        for guard in self.captured.guards:
            if guard.source is not None and guard.kind is not GuardKind.SIZE and self._depends(guard.source):
                yield from self._condition(guard)
        for symbol, origin in self.captured.symbols.items():
            resolved = self.captured.sizes.resolve(origin.dim)
            if isinstance(origin.source, Computed) and resolved is not dims.of_atom(symbol):
                yield Condition(self.of(origin.source), "==", self.of_dim(resolved))

    def _depends(self, source: Source) -> bool:
        """Does it lead by way of a size that differs from call to call?"""
        if source.name() in self.numbers and expressions.names(self.of(source)):
            return True
        if source in self.known and expressions.names(self.known[source]):
            return True
        parts = (getattr(source, each.name) for each in fields(source))  # type: ignore[arg-type]
        inner = (part for each in parts for part in (each if isinstance(each, tuple) else (each,)))
        return any(isinstance(part, Source) and self._depends(part) for part in inner)

    def _condition(self, guard: Guard) -> Iterator[Condition]:
        source: Any = guard.source
        if source.name() in self.numbers and guard.kind is GuardKind.TYPE:
            return  # an int, which a call must bring
        if not isinstance(source, Computed) or guard.kind not in (GuardKind.ID, GuardKind.EQUAL, GuardKind.TYPE):
            raise _refused(source, guard.user_line)
        try:
            text, names = self._text(source)
            tests = [expressions.of_text(each, names) for each in _unchained(text)]
        except (Unknown, SyntaxError, Unsupported) as error:
            raise _refused(source, guard.user_line) from error
        if guard.kind is GuardKind.TYPE:
            if expressions.kind(tests[0]) is not guard.payload:
                raise _refused(source, guard.user_line)
            return
        if len(tests) > 1 and guard.payload is not True:
            raise _refused(source, guard.user_line)
        yield from (_held(test, guard) for test in tests if not LIMITS.intersection(_constants(test)))


#: What fits an integer of the graph, and what capture takes for a size: no tensor has more.
LIMITS = {-(2**63), 2**63 - 1, 2**31}


def _constants(test: Expression) -> set[Any]:
    return {side for side in test if type(side) is int} if isinstance(test, tuple) else set()


def behind(symbols: Iterable[Symbol], captured: Captured) -> set[Symbol]:
    """The symbols of sizes, for those that were computed the symbols of what they were computed of."""
    own = {origin.source: symbol for symbol, origin in captured.symbols.items()}

    def walk(source: Source) -> Iterator[Symbol]:
        if isinstance(source, Computed):
            for operand in source.operands:
                yield from walk(operand)
        elif source in own:
            yield own[source]

    known = [symbol for symbol in symbols if symbol in captured.symbols]
    return {found for symbol in known for found in walk(captured.symbols[symbol].source)} or set(symbols)


def _held(test: Expression, guard: Guard) -> Condition:
    if type(guard.payload) is bool and isinstance(test, tuple) and test[0] in OPPOSITE:
        sign, left, right = test
        return Condition(left, sign if guard.payload else OPPOSITE[sign], right, guard.user_line)
    if type(guard.payload) not in (int, float, bool):
        raise _refused(guard.source, guard.user_line)
    return Condition(test, "==", guard.payload, guard.user_line)


def _unchained(text: str) -> Iterator[str]:
    """`0 <= a < 9` as the two comparisons that it is."""
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Compare):
        yield text
        return
    sides = [node.left, *node.comparators]
    for left, sign, right in zip(sides, node.ops, sides[1:], strict=False):
        yield ast.unparse(ast.Compare(left, [sign], [right]))


def _refused(source: Any, where: str = "") -> Unsupported:
    line = f" in {where}: {guards.line_text(where)}" if where else ""
    return Unsupported(
        CODE, f"the program relies on {source.name()}, which depends on a size that varies{line}",
        "Compute with sizes by arithmetic and functions of math, or declare the size as a constant.",
    )  # fmt: skip

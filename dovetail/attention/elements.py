"""score_mod and mask_mod as expressions of the loop IR, over the places b, h, i, j and the score there.

    score + slopes[h] * (j - i)      ->      score[b, h, i, j] + c0[h] * float32(int32(index(j - i)))

Their graphs are normalized and lowered like any other; what the program's groups store is put where it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.attention.learned import apart
from dovetail.attention.narrowing import Narrowing
from dovetail.errors import Unsupported
from dovetail.ir import dims
from dovetail.ir.aten import JointGraph
from dovetail.ir.attention import Scores
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Buffer, Check, Const, Expr, Group, Index, Load, Program, Store, rewrite
from dovetail.lower import lower
from dovetail.normalize import normalize, normalize_joint
from dovetail.ops.fake import FakeTensor, to_fake
from dovetail.options import Options
from dovetail.schedule.fusion.simplify import Simplifier

Sizes = tuple[Dim, Dim, Dim, Dim]


def scores(
    sizes: Sizes, device: torch.device, functions: tuple[Any, Any], lifted: tuple[Sequence[Any], Sequence[Any]],
    trained: bool, learned: Sequence[int] = (),
) -> Scores:  # fmt: skip
    """Raises Unsupported for functions that are more than an expression of each element. `learned` are those of the
    score_mod's tensors that are to have gradients."""
    places = tuple(dims.symbol(name, 0, size) for name, size in zip("bhij", sizes, strict=True))
    element = [FakeTensor((), (), torch.int64, device) for _ in places]
    score, tangent = (
        Load(Buffer(name, torch.float32, device, sizes, (0, 0, 0, 0), 0, "input"), places)
        for name in ("score", "tangent")
    )
    reading = _Reading(places, score, tangent)
    found: list[Expr | None] = [score, tangent]
    elements: list[Load] = []
    if not _unchanged(functions[0]):
        fake = FakeTensor((), (), torch.float32, device, requires_grad=trained)
        tables = list(map(_plain, lifted[0]))
        reads, changes = apart(functions[0], [5 + k for k in learned])
        if reads is not None:
            program = _lowered(reads, [fake.detach(), *element, *tables], False)
            elements = [_loaded(e) for e in reading.outputs(program, [score], 0, len(tables))]
        leaves = [FakeTensor((), (), e.dtype, device, requires_grad=True) for e in elements]
        program = _lowered(changes, [fake, *element, *tables, *leaves], trained)
        found = reading.outputs(program, [score], 0, len(tables), elements)
    shown, reading.checks = reading.checks, {}
    program = _lowered(functions[1], [*element, *map(_plain, lifted[1])], False)
    (mask,) = reading.outputs(program, [], len(lifted[0]), len(lifted[1]))
    value, *gradients = found
    of_elements = gradients[len(gradients) - len(elements) :]
    if mask is None or mask.dtype is not torch.bool or value is None or value.dtype is not torch.float32:
        raise Unsupported("attention-function", "a mask_mod is to give a truth value, and a score_mod a score")
    gradient = (gradients[0] or Const(0.0, torch.float32)) if trained else None
    sums = tuple((e, g) for e, g in zip(elements, of_elements, strict=True) if g is not None)
    return Scores(
        places, score, tangent, value, mask, gradient, tuple(reading.tables.values()), sums,
        tuple(shown.items()), tuple(reading.checks.items()),
    )  # fmt: skip


def _loaded(element: Expr | None) -> Load:
    """An element of a table as it lies there."""
    if isinstance(element, Load) and element.mask is None and element.dtype.is_floating_point:
        return element
    raise Unsupported("attention-function", "the function changes a table that needs gradients before it reads it")


def _unchanged(graph: Any) -> bool:
    """Does a score_mod give the score as it is?"""
    first, *_, output = graph.graph.nodes
    return output.args[0][0] is first


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return to_fake(tensor, leaf=False)


def _lowered(graph: Any, fakes: list[Any], trained: bool) -> Program:
    options = Options()
    with torch.set_grad_enabled(trained), torch.autocast(fakes[0].device.type, enabled=False):
        made = normalize_joint(graph, fakes, options) if trained else normalize(graph, fakes, options)
        aten = made.aten if isinstance(made, JointGraph) else made
        if trained and made is aten or any(r.origin != "result" for r in aten.returned):
            raise Unsupported("attention-function", "the function gives what it was given")
        return lower(aten, options)


class _Reading:
    """Puts together what programs of elements compute."""

    def __init__(self, places: tuple[Dim, ...], score: Load, tangent: Load) -> None:
        self.places, self.score, self.tangent = places, score, tangent
        self.tables: dict[str, Buffer] = {}
        self.checks: dict[Expr, str] = {}
        self.simplifier, self.narrowing = Simplifier(exact_rounding=False), Narrowing()

    def outputs(
        self, program: Program, scores: list[Load], start: int, count: int, elements: Sequence[Load] = ()
    ) -> list[Expr | None]:
        """`count` of the inputs are tables, from number `start` of all; elements of them follow, then the tangent."""
        if program.mutated or program.constants or program.numbers:
            raise Unsupported("attention-function", "the function does more than compute an element")
        given: list[Expr] = [*scores, *map(Index, self.places)]
        known = dict(zip((b.name for b in program.inputs), given, strict=False))
        rest = program.inputs[len(given) :]
        tables = {b.name: f"table{start + k}" for k, b in enumerate(rest[:count])}
        others = [*elements, self.tangent]
        known |= {b.name: other for b, other in zip(rest[count:], others, strict=False)}
        memo: dict[Expr, Expr] = {}

        def leaf(node: Expr) -> Expr | None:
            if not isinstance(node, Load):
                return None
            name = node.buffer.name
            return known[name] if name in known else self.table(node, tables[name])

        def finished(expr: Expr) -> Expr:
            return self.narrowing.expr(self.simplifier.expr(expr))

        for item in program.items:
            for statement in _statements(item):
                if isinstance(statement, Check):
                    condition = finished(rewrite(statement.condition, {}, memo, leaf))
                    if not (isinstance(condition, Const) and condition.value):
                        self.checks[condition] = statement.message
                else:
                    known[statement.buffer.name] = rewrite(statement.value, {}, memo, leaf)
        results = (o.value for o in program.outputs)
        return [finished(known[b.name]) if isinstance(b, Buffer) else None for b in results]

    def table(self, node: Load, name: str) -> Load:
        """The element at a flat address."""
        buffer = node.buffer
        if isinstance(buffer.span, int) and buffer.span >= 1 << 31:
            raise Unsupported("attention-function", "a table is too large")
        flat = self.tables.setdefault(name, Buffer(name, buffer.dtype, buffer.device, (buffer.span,), (1,), 0, "input"))
        address: Dim = buffer.offset
        for place, stride in zip(node.index, buffer.strides, strict=True):
            address = address + place * stride
        return Load(flat, (address,), node.mask)


def _statements(item: Any) -> list[Store | Check]:
    """Of a group that computes one element of tensors without dimensions."""
    plain = isinstance(item, Group) and not item.outer and all(not loop.inner for loop in item.loops)
    found = list(item.statements()) if plain else []
    stored = [s for s in found if isinstance(s, Store) and not s.buffer.sizes and not s.scan]
    if not found or len(stored) + sum(isinstance(s, Check) for s in found) < len(found):
        raise Unsupported("attention-function", "the function computes more than an element")
    return found

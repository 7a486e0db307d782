"""What callers of a program need of its functional graph: inputs and results of all turns.

The graphs that come out have no operators; only a short graph's are compiled.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from dovetail.ir.aten import AtenGraph, JointGraph, Pair, ends, results_of
from dovetail.repeats.rows import Irregular, Row, fixed, joined, widened


def whole_aten(
    aten: AtenGraph, inputs: Row, outputs: Row | None = None
) -> AtenGraph:
    """`inputs` are those of the caller; without `outputs` none is of a turn."""
    if aten.mutated or aten.recounted:
        raise Irregular("inputs are written to")
    given = [
        (n.name, n.meta.get("val"))
        for n in aten.graph.nodes
        if n.op == "placeholder"
    ]
    known, taken = {*inputs.short}, {name for name, _ in given}
    wide = []
    for place, like in zip(inputs.whole, inputs.likes, strict=True):
        name, value = given[like]
        wide.append((name if place in known else _unused(name, taken), value))
    results = results_of(aten)
    if outputs is not None:
        results = [results[like] for like in outputs.likes]
    returned = tuple(
        replace(each, value=inputs.position(each.value))
        if each.origin == "input"
        else each
        for each in aten.returned
    )
    saved = aten.saved and aten.saved + len(results) - len(results_of(aten))
    return replace(
        aten,
        graph=ends([*wide, *given[len(inputs.short) :]], results),
        returned=returned,
        saved=saved,
    )


def _unused(name: str, taken: set[str]) -> str:
    made = next(
        other
        for k in itertools.count(len(taken))
        if (other := f"{name}_{k}") not in taken
    )
    taken.add(made)
    return made


def whole_joint(joint: JointGraph, inputs: Row) -> JointGraph:
    """Of a joint graph that writes to no input."""
    if joint.rewritten or any(each.kind == "input" for each in joint.passed):
        raise Irregular("inputs are written to")
    aten = whole_aten(
        joint.aten, inputs, joined([fixed_row(joint.results, inputs.more), inputs])
    )
    return replace(joint, aten=aten, inputs=len(inputs.whole), backward=frozenset())


def given_backward(pair: Pair, inputs: Row, outputs: Row) -> Row:
    """The inputs of the backward program; `outputs` are those of the forward program."""
    kept = widened([inputs.short[k] for k in pair.kept], inputs.more)
    count = len(results_of(pair.forward))
    saved = outputs.part(count - pair.forward.saved, count - pair.sizes)
    placeholders = [n for n in pair.backward.graph.nodes if n.op == "placeholder"]
    rest = (
        len(placeholders)
        - len(pair.backward.constants)
        - len(kept.short)
        - len(saved.short)
    )
    return joined([kept, saved, fixed_row(rest, inputs.more)])


def whole_pair(pair: Pair, inputs: Row, outputs: Row, given: Row) -> Pair:
    """`outputs` of the forward program, `given` to the backward program."""
    forward = whole_aten(pair.forward, inputs, outputs)
    backward = whole_aten(pair.backward, given, inputs)
    numbers = tuple(inputs.position(k) for k in pair.numbers)
    return Pair(
        forward,
        backward,
        inputs.positions(pair.kept),
        (),
        numbers,
        inputs.spread(pair.depends),
        pair.sizes,
    )


def fixed_row(count: int, more: int) -> Row:
    """Values that belong to no series."""
    return Row(tuple(fixed(count)), tuple(fixed(count)), more)

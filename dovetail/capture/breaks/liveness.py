"""Which local variables the rest of a function can still read."""

from __future__ import annotations

from dovetail.bytecode import ROWS, UNKNOWN, Code, Instruction, Row
from dovetail.ir.stores import remembered

SEE_ALL = frozenset(("locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe"))


@remembered(5000)
def live(code: Code, index: int) -> frozenset[str]:
    """Names of locals that may be read before they are assigned when the code goes on at `index`."""
    if not SEE_ALL.isdisjoint(code.code.co_names):
        return frozenset(code.fast_names)
    always = ("__class__", *code.code.co_varnames[:1]) if "__class__" in code.code.co_freevars else ()  # super()
    return _tables(code)[index] | frozenset(always)


@remembered(5000)
def _tables(code: Code) -> tuple[frozenset[str], ...]:
    """Live names before each instruction: the least fixed point of the backward equations."""
    instructions = code.instructions
    count = len(instructions)
    successors = [_successors(code, k) for k in range(count)]
    effects = [_effect(i) for i in instructions]
    found: list[frozenset[str]] = [frozenset()] * (count + 1)
    changed = True
    while changed:
        changed = False
        for k in range(count - 1, -1, -1):
            after: frozenset[str] = frozenset().union(*(found[n] for n in successors[k][0]))
            reads, writes = effects[k]
            now = reads | (after - writes)
            for handler in successors[k][1]:
                now |= found[handler]
            if now != found[k]:
                found[k], changed = now, True
    return tuple(found)


def _successors(code: Code, index: int) -> tuple[list[int], list[int]]:
    instruction = code.instructions[index]
    out = []
    if not _row(instruction).ends:
        out.append(index + 1)
    if instruction.target >= 0:
        out.append(instruction.target)
    region = code.region(index)
    return out, [region.target] if region is not None else []


def _effect(instruction: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """(names read, names written)."""
    row, named = _row(instruction), frozenset((instruction.value,))
    return named if row.reads else frozenset(), named if row.writes else frozenset()


def _row(instruction: Instruction) -> Row:
    return ROWS.get(instruction.name, UNKNOWN)

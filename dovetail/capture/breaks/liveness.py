"""Which local variables the rest of a function can still read."""

from __future__ import annotations

from typing import Any

from dovetail.bytecode import Code
from dovetail.ir.stores import remembered

#: A store to a cell needs the cell.
READS = frozenset((
    "LOAD_FAST", "LOAD_CLOSURE", "DELETE_FAST", "LOAD_FAST_AND_CLEAR", "LOAD_DEREF", "MAKE_CELL", "STORE_DEREF",
    "DELETE_DEREF",
))  # fmt: skip
ENDS = frozenset(("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"))
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
    if instruction.name not in ENDS and instruction.name != "JUMP":
        out.append(index + 1)
    if instruction.target >= 0:
        out.append(instruction.target)
    region = code.region(index)
    return out, [region.target] if region is not None else []


def _effect(instruction: Any) -> tuple[frozenset[str], frozenset[str]]:
    """(names read, names written)."""
    name, value = instruction.name, instruction.value
    if name in READS:
        return frozenset((value,)), frozenset()
    if name == "STORE_FAST":
        return frozenset(), frozenset((value,))
    if name == "LOAD_FAST_LOAD_FAST":
        return frozenset(value), frozenset()
    if name == "STORE_FAST_STORE_FAST":
        return frozenset(), frozenset(value)
    if name == "STORE_FAST_LOAD_FAST":
        return frozenset(value[1:]) - frozenset(value[:1]), frozenset(value[:1])
    return frozenset(), frozenset()

"""Phase 6: from one operator a group to few fused groups in a good order."""

from __future__ import annotations

from dovetail.ir.kernel import MemoryPlan
from dovetail.ir.liveness import output_buffers, reads, view_roots, writes
from dovetail.ir.loops import Check, Group, Item, Program, View
from dovetail.options import Options
from dovetail.schedule.fusion.align import Names
from dovetail.schedule.fusion.arrange import arrange
from dovetail.schedule.fusion.fuse import FusionSlot, fuse
from dovetail.schedule.fusion.inline import inline, remove_dead
from dovetail.schedule.gpu.split import suited
from dovetail.schedule.launch.buckets import divided, in_buckets
from dovetail.schedule.launch.collectives import run_beside
from dovetail.schedule.launch.cuda_graphs import graph_facts, unrecordable
from dovetail.schedule.launch.gather import gather
from dovetail.schedule.memory import block
from dovetail.schedule.memory.in_place import write_in_place
from dovetail.schedule.memory.lifetimes import most_alive
from dovetail.schedule.memory.reuse import reuse
from dovetail.schedule.memory.shared_concat import share_prefixes
from dovetail.schedule.memory.store_in_concat import store_early

__all__ = [
    "divided", "gather", "graph_facts", "in_buckets", "plan_memory", "reuse", "run_beside", "schedule", "unrecordable",
]  # fmt: skip


def schedule(program: Program, options: Options) -> Program:
    """Fuse; the result computes the same values with fewer, larger groups."""
    program = share_prefixes(remove_dead(program))
    most = most_alive(program)
    program = inline(program, exact_rounding=options.numerics == "eager")
    program = store_early(program, most)
    slots = fuse(program, Names(), most)
    return write_in_place(program.with_items(_checks_first(program, _finish(program, slots))))


def _checks_first(program: Program, items: tuple[Item, ...]) -> tuple[Item, ...]:
    """What can be refused without calling a library is refused before anything else: from then on inputs may be
    written to."""
    roots = view_roots(program)
    made: dict[str, list[int]] = {}
    for position, item in enumerate(items):
        for name in writes(item):
            made.setdefault(roots.get(name, name) if isinstance(item, Group) else name, []).append(position)
    early: set[int] = set()
    for position, item in enumerate(items):
        if isinstance(item, Group) and all(isinstance(s, Check) for s in item.statements()):
            needed = _needed(items, position, made, roots)
            early |= needed if all(isinstance(items[k], (Group, View)) for k in needed) else set()
    return (*(items[k] for k in sorted(early)), *(item for k, item in enumerate(items) if k not in early))


def _needed(items: tuple[Item, ...], position: int, made: dict[str, list[int]], roots: dict[str, str]) -> set[int]:
    """The item and all that its operands come from."""
    needed, waiting = set(), [position]
    while waiting:
        at = waiting.pop()
        if at not in needed:
            needed.add(at)
            for name in reads(items[at]):
                waiting += [*made.get(name, ()), *made.get(roots.get(name, name), ())]
    return needed


def _finish(program: Program, slots: list[FusionSlot]) -> tuple[Item, ...]:
    roots = view_roots(program)
    outputs = output_buffers(program)
    always = set(outputs) | {roots.get(n, n) for n in outputs}
    readers: dict[str, int] = {}
    for slot in slots:
        for name in slot.reads:
            readers[name] = readers.get(name, 0) + 1
    items: list[Item] = []
    for slot in slots:
        if slot.nest is None:
            assert slot.item is not None
            items.append(slot.item)
            continue
        mine = {name for name in slot.nest.written() if readers.get(name, 0) == (name in slot.reads)}
        needed = slot.nest.written() - (mine - always)
        items += suited(arrange(slot.nest, _name(len(items), slot.nest.names), needed))
    return tuple(items)


def _name(number: int, members: list[str]) -> str:
    """k7_mul_exp_sum: unique by its number, readable by the operators it came from."""
    operators = dict.fromkeys(name.rstrip("0123456789").rstrip("_") for name in members)
    return f"k{number}_" + "_".join(operators)[:60]


def plan_memory(program: Program, has_out: frozenset[object]) -> MemoryPlan:
    """Where each temporary lives; `has_out` are the operators that write where they are told."""
    return block.plan(program, has_out)

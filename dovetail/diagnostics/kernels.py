"""What a compiled program launches, as data: the artifact `kernels`.

    {"part": "forward", "exact": true,
     "steps": [{"name": "add_0", "kind": "kernel", "symbol": "k1f", "groups": 1, "operators": ["sin_0", "add_1"],
                "reads": ["a0"], "writes": ["b1"], "read_bytes": 4096, "written_bytes": 4096, "lines": [0]}, ...],
     "kernels": {"k1f": {"text": [0, 1234], "loops": "group add_0 ...", "warps": 4}},
     "places": [{"file": ..., "line": ..., "source": ...}, ...], "stacks": [[0, 1, 5], ...],
     "memory": {"inputs": 4096, "constants": 0, "temporaries": 0, "outputs": 4096}}

`text` is the kernel's part of the artifact `kernel_code`; `lines` are places in `stacks`, the user's lines that a step
computes, each a list of places in `places`, outermost first. Bytes count each buffer of a step once; with sizes that
vary they are not `exact`, but of typical sizes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dovetail.diagnostics.trace import located
from dovetail.ir import dimvalues
from dovetail.ir.kernel import HostProgram, Kernel, MemoryPlan
from dovetail.ir.liveness import output_buffers, reads, writes
from dovetail.ir.loops import Batch, Buffer, Group, Item, LibraryCall, Program, View
from dovetail.ir.text import group_text

Launched = Group | Batch | LibraryCall


def kernels_text(
    part: str, lowered: Program, fused: Program, final: Program, kernels: Mapping[str, Kernel], memory: MemoryPlan,
    host: HostProgram,
) -> str:  # fmt: skip
    """`part`: forward or backward, if it is one. `lowered` has an operator a group, `fused` a kernel a group, `final`
    a launch an item; `kernels` by the names of groups and batches."""
    steps = _Steps(lowered, fused, kernels)
    told = [steps.step(item) for item in final.items if not isinstance(item, View)]
    each = dict.fromkeys(place for stack in steps.stacks for place in stack)
    places = {place: number for number, place in enumerate(each)}
    return json.dumps({
        "part": part.strip(), "exact": not final.sizes, "steps": told, "kernels": _kernels(final, kernels, host),
        "places": [located(place) for place in places],
        "stacks": [[places[place] for place in stack] for stack in steps.stacks],
        "memory": {
            "inputs": _bytes(b for b in final.inputs if b.name not in final.constants),
            "constants": _bytes(b for b in final.inputs if b.name in final.constants),
            "temporaries": memory.size + sum(max(map(dimvalues.typical, slot), default=0) for slot in memory.slots),
            "outputs": _bytes(output_buffers(final).values()),
        },
    })  # fmt: skip


def _groups(item: Item) -> tuple[Group, ...]:
    return item.groups if isinstance(item, Batch) else (item,) if isinstance(item, Group) else ()


def _bytes(buffers: Iterable[Buffer]) -> int:
    return sum(dimvalues.typical(b.numel) * b.dtype.itemsize for b in buffers)


def _kernels(final: Program, kernels: Mapping[str, Kernel], host: HostProgram) -> dict[str, Any]:
    """Each distinct one, with the loops of the first group that it computes."""
    found, start = {}, 0
    for kernel in host.kernels:
        warps = kernel.launch.warps if kernel.launch is not None else None
        found[kernel.symbol] = {"text": [start, start + len(kernel.text)], "loops": "", "warps": warps}
        start += len(kernel.text) + 1
    for item in final.items:
        for group in _groups(item)[:1]:
            symbol = kernels[item.name].symbol  # type: ignore[union-attr]
            if symbol in found and not found[symbol]["loops"]:
                found[symbol]["loops"] = group_text(group)
    return found


class _Steps:
    """Finds what each launch computes: the operators between what it reads and what it writes."""

    def __init__(self, lowered: Program, fused: Program, kernels: Mapping[str, Kernel]) -> None:
        self.kernels, self.known = kernels, lowered.lines
        self.makers: dict[str, list[tuple[int, Item]]] = {}
        for position, item in enumerate(lowered.items):
            for name in writes(item):
                self.makers.setdefault(name, []).append((position, item))
        self.updates = {old.name: new.name for old, new in lowered.mutated}  # what is stored where an input was
        stored = [name for item in fused.items if not isinstance(item, View) for name in writes(item)]
        self.stored = {name for known in stored for name in (known, self.updates.get(known, known))}
        self.stacks: dict[Any, int] = {}
        self.numbers: dict[int, int] = {}  # by the ids of stacks, which `known` keeps alive

    def step(self, item: Launched) -> dict[str, Any]:
        read, written = reads(item), writes(item)
        told = {
            "name": item.name, "reads": list(read), "writes": list(written),
            "read_bytes": _bytes(read.values()), "written_bytes": _bytes(written.values()),
        }  # fmt: skip
        if isinstance(item, LibraryCall):
            operator = str(item.operator).removesuffix(".default")
            return {**told, "kind": "library", "operators": [operator], "lines": self.lines([*written, *read][:1])}
        made = self.made(item)
        operators = [group.name for group in made if isinstance(group, Group)]
        lines = self.lines(name for group in made for name in writes(group))
        symbol, groups = self.kernels[item.name].symbol, len(_groups(item))
        return {**told, "kind": "kernel", "symbol": symbol, "groups": groups, "operators": operators, "lines": lines}

    def made(self, item: Group | Batch) -> list[Item]:
        """In their order, the operators between what other steps have stored and what this one stores."""
        found: dict[int, Item] = {}
        waiting = [self.updates.get(name, name) for name in writes(item)]
        while waiting:
            for position, maker in self.makers.get(waiting.pop(), ()):
                if position not in found and not isinstance(maker, LibraryCall):
                    found[position] = maker
                    waiting += [name for name in reads(maker) if name not in self.stored]
        return [found[position] for position in sorted(found)]

    def lines(self, names: Iterable[str]) -> list[int]:
        """Numbers of the distinct stacks of what the buffers hold."""
        return list(dict.fromkeys(self.number(self.known[name]) for name in names if name in self.known))

    def number(self, stack: Any) -> int:
        """Equal stacks have the same; to hash one takes a while."""
        found = self.numbers.get(id(stack))
        if found is None:
            found = self.numbers[id(stack)] = self.stacks.setdefault(stack, len(self.stacks))
        return found

"""The kernel's own view of the context (`ir/launch.py`): reading and writing its slots.

    8...       values handed from one phase to the next (split reductions)
    then       the kernel's sizes and pointers, in turn
"""

from __future__ import annotations

import re

from dovetail.codegen.common.signature import KernelSignature
from dovetail.ir.launch import FIRST_FREE, LAUNCH, LAUNCH_MANY, PARTIALS, SEGMENT, SEGMENTS

FIRST_VALUE = FIRST_FREE


def declare_launch(declares: dict[str, str]) -> None:
    """The runtime's function that runs a body's tasks."""
    declares[LAUNCH] = f"declare void @{LAUNCH}(ptr, ptr, i64, i64, i64, i64)"


def declare_launch_many(declares: dict[str, str]) -> None:
    """The one that runs those of several contexts."""
    declares[LAUNCH_MANY] = f"declare void @{LAUNCH_MANY}(ptr, i64, i64, i64, ptr, ptr)"


def load(name: str, slot: int, kind: str = "i64") -> list[str]:
    """Lines that read a slot into `name`."""
    return [
        f"  {name}.at = getelementptr i64, ptr %ctx, i64 {slot}",
        f"  {name} = load {kind}, ptr {name}.at, align 8",
    ]


def store(at: str, slot: int, value: str, kind: str = "i64") -> list[str]:
    """Lines that write a slot; `at` is a fresh name."""
    return [f"  {at} = getelementptr i64, ptr %ctx, i64 {slot}", f"  store {kind} {value}, ptr {at}, align 8"]


def arguments(signature: KernelSignature, first: int) -> list[tuple[str, str, int]]:
    """Name, type and slot of every kernel argument known so far."""
    sizes = [(f"%n{k}", "i64", first + 2 * k) for k in range(len(signature.sizes))]
    return sizes + [(f"%p{k}", "ptr", first + 2 * k + 1) for k in range(len(signature.pointers))]


def prologue(lines: list[str], signature: KernelSignature, first: int) -> list[str]:
    """Read the arguments and segment facts that `lines` mention."""
    used = set(re.findall(r"%(?:[pn]\d+|segments?|partials|parts)\b(?!\.)", "\n".join(lines)))
    found: list[str] = []
    facts = [("%segment", "i64", SEGMENT), ("%segments", "i64", SEGMENTS), ("%partials", "ptr", PARTIALS)]
    for name, kind, slot in (*arguments(signature, first), *facts):
        if name in used:
            found += load(name, slot, kind)
    return found

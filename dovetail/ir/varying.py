"""What differs from call to call: what calls have shown, and what the user says of a tensor.

Numbers and sizes are named by the path to them: `n`, `self.step`, `x.shape[0]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from itertools import islice
from typing import Any

from dovetail.ir.guard import Guard, GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Computed

ATTRIBUTE = "_dovetail_marks"


@dataclass(frozen=True)
class Marks:
    """What the user says of one tensor. Bounds are of sizes, both included; None where there is none.

    `names`: `(n, 2, 1)` is a size of 2 * n + 1, where others may mention `n` too.
    """

    dynamic: Mapping[int, tuple[int | None, int | None]] = field(default_factory=dict)
    perhaps: frozenset[int] = frozenset()
    static: frozenset[int] = frozenset()
    address: bool = False
    names: Mapping[int, tuple[str, int, int]] = field(default_factory=dict)


NO_MARKS = Marks()


def marks_of(tensor: Any) -> Marks:
    """The marks of a tensor, ours or those that PyTorch's compiler is told; none by default."""
    found = getattr(tensor, ATTRIBUTE, None)
    if found is None and hasattr(tensor, "__dict__") and not tensor.__dict__.keys().isdisjoint(_TORCHS):
        return _marks_of_torch(tensor.__dict__)
    return found or NO_MARKS


#: Where PyTorch keeps what `torch._dynamo.mark_dynamic` and its like say. An "unbacked" size is free like others.
_TORCHS = (
    "_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_static_indices", "_dynamo_unbacked_indices",
    "_dynamo_strict_unbacked_indices",
)  # fmt: skip


def _marks_of_torch(found: Mapping[str, Any]) -> Marks:
    dynamic, perhaps, static, unbacked, strict = (found.get(name) or () for name in _TORCHS)
    bounds = {r.dim: (r.min, r.max) for r in found.get("_dynamo_dynamic_range") or ()}
    dynamic = {k: bounds.get(k, (None, None)) for k in (*dynamic, *strict)}
    return Marks(dynamic, frozenset((*perhaps, *unbacked)), frozenset(static))


@dataclass(frozen=True)
class Varying:
    """`names` were seen to change; with `everything`, all numbers and all sizes count as if they had been.

    `seen` are the sizes that compiled calls had, each call by the names. `constant` are names that count as constants
    all the same, and why: something could not do without. No entry shall rely on the facts in `unstable`.
    `apart`: sizes that are equal in this call are symbols of their own even so.
    """

    names: frozenset[str] = frozenset()
    everything: bool = False
    seen: tuple[Mapping[str, int], ...] = ()
    constant: Mapping[str, str] = field(default_factory=dict)
    unstable: frozenset[str] = frozenset()
    apart: bool = False

    def __contains__(self, name: str) -> bool:
        """Does the number change?"""
        return (self.everything or name in self.names) and name not in self.constant

    def changed(self, name: str) -> bool:
        """Was it seen to change?"""
        return name in self.names and name not in self.constant

    def alike(self, name: str, other: str) -> bool:
        """Were the two sizes equal in every call that had both?"""
        if self.apart:
            return False
        return all(name not in sizes or sizes[name] == sizes.get(other, sizes[name]) for sizes in self.seen)

    def without(self, names: Any, reason: str) -> Varying:
        """The same, with these names as constants for a reason that is shown."""
        return replace(self, constant={**self.constant, **dict.fromkeys(names, reason)})


CONSTANT = Varying()

#: Modules inside one, from which on guarding each by what it holds takes longer than the layers do.
MANY = 100


def known_by_contents(module: Any) -> bool:
    """May a module, where a path was seen to lead to several, be known by what it holds in place of its identity?"""
    return sum(1 for _ in islice(module.modules(), MANY)) < MANY


def facts(guard: Guard) -> tuple[str, ...]:
    """Names for what a guard looks at, if that is a value that may be another one in each call.

    The outcomes of tests that one line makes have a name in common: the line may be in a loop.
    """
    source, kind = guard.source, guard.kind
    if source is None:
        return ()
    if kind is GuardKind.ID and type(guard.payload) is bool and isinstance(source, Computed):
        return source.name(), f"a test in {guard.user_line}"
    return (f"len({source.name()})" if kind is GuardKind.LENGTH else source.name(),) if kind in VALUES else ()


VALUES = (GuardKind.EQUAL, GuardKind.LENGTH, GuardKind.KEYS)

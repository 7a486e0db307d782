"""Tables of a module's hooks, which are called in order, where a path leads to many modules.

Their keys are numbers that PyTorch counts, others for each module. What decides is how many hooks there are, and which
of the numbers are in the tables beside them: so modules that are alike share an entry.
"""

from __future__ import annotations

from dovetail.capture.numbers.input_numbers import InputNumber
from dovetail.capture.outside.wrap import is_alike
from dovetail.capture.values.base import Const, Session, Value
from dovetail.capture.values.containers import DictValue, TupleValue, ViewValue
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Attr, KeyAt, Source, ValueAt

TABLES = frozenset(("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks"))


def size(s: Session, table: DictValue) -> Const | None:
    """How many hooks there are; None of any other dictionary."""
    source = _counted(s, table)
    if source is None:
        return None
    s.guard(source, GuardKind.LENGTH, len(table.real))
    return Const(len(table.real))


def listed(s: Session, view: ViewValue) -> list[Value] | None:
    """What `list(view)` holds, by its places in the table; None of any other dictionary."""
    source = _counted(s, view.base)
    if source is None:
        return None
    size(s, view.base)
    found: list[Value] = []
    for place, (number, hook) in enumerate(view.base.real.items()):
        key, value = InputNumber(s, number, KeyAt(source, place), True), s.wrap(hook, ValueAt(source, place))
        found.append({"keys": key, "values": value, "items": TupleValue((key, value))}[view.kind])
    return found


def _counted(s: Session, table: DictValue) -> Source | None:
    """The path to such a table that is as it was when the call began."""
    source = table.source
    if table.unread is None or table.added or not isinstance(source, Attr) or source.field not in TABLES:
        return None
    counted = is_alike(s, source) and all(type(number) is int for number in table.real)
    return source if counted else None

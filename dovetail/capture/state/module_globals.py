"""A module's globals as traced code sees them."""

from __future__ import annotations

import builtins
import sys
from typing import Any

from dovetail.capture.process.trusted_code import rely_on_entry, trusted
from dovetail.capture.process.unguarded_facts import datum
from dovetail.capture.values.base import MISSING, Session, Value
from dovetail.ir.asked import in_module
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Global, Globals, Source


class ModuleGlobals:
    """`module` is "" for the compiled function's own globals, None where no module owns the table."""

    __slots__ = ("table", "module", "values", "trusted", "own", "builtins")

    def __init__(self, table: dict[str, Any], module: str | None) -> None:
        self.table = table
        if module and getattr(sys.modules.get(module), "__dict__", None) is not table:
            module = None
        self.module = module
        self.values: dict[str, Any] = {}
        self.own = (module or "").startswith("dovetail.capture.")  # polyfills: nothing of theirs changes
        self.trusted = self.own or bool(module) and trusted(module)
        found = table.get("__builtins__", builtins)
        self.builtins = found if isinstance(found, dict) else vars(found)

    def source(self, s: Session, name: str) -> Source | None:
        """The path to a global; None where it is trusted not to change."""
        if self.trusted:
            return None
        if self.module is None:
            return s.bind(self.table, "globals").item(name)
        return Global(name, self.module)

    def load(self, s: Session, name: str) -> Value | None:
        """The global or builtin; None if there is none."""
        found = self.values.get(name)
        if found is None:
            if name in self.table:
                found = s.wrap(self.table[name], self.source(s, name))
                if self.trusted and not self.own:
                    rely_on_entry(s, self.table, self.module or "", name, self.table[name])
                    datum(s, in_module, self.module, name, self.table[name])
            elif name in self.builtins:
                self._rely_on_absence(s, name)
                found = s.wrap(self.builtins[name], None)
                rely_on_entry(s, self.builtins, "builtins", name, self.builtins[name])
            else:
                return None
            self.values[name] = found
        return None if found is MISSING else found

    def _rely_on_absence(self, s: Session, name: str) -> None:
        """No global hides the builtin."""
        if not self.trusted:
            table = s.bind(self.table, "globals") if self.module is None else Globals(self.module)
            s.guard(table, GuardKind.CONTAINS, (name, False))

    def store(self, s: Session, name: str, value: Any) -> None:
        """`global name; name = value`."""
        self.values[name] = value
        s.effects.store_global(self, name, value)


def in_optimizer(s: Session) -> bool:
    """Is it an optimizer's code that wants to know?"""
    return bool(s.frames[-1].scope.table.get("__name__", "").startswith("torch.optim."))

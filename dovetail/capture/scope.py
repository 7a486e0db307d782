"""A module's globals as traced code sees them."""

from __future__ import annotations

import builtins
import sys
from typing import Any

from dovetail.capture.values.base import MISSING, Value
from dovetail.ir.source import Global, Source

# Code of these packages is taken to be constant: their globals are not guarded.
TRUSTED = frozenset({"torch", "dovetail", *sys.stdlib_module_names}) - {"__main__"}


def trusted(module: str) -> bool:
    """Is the module part of the standard library or of PyTorch?"""
    return module.partition(".")[0] in TRUSTED


class Scope:
    """`module` is "" for the compiled function's own globals, None where no module owns the table."""

    __slots__ = ("table", "module", "values", "trusted", "builtins")

    def __init__(self, table: dict[str, Any], module: str | None) -> None:
        self.table = table
        if module and getattr(sys.modules.get(module), "__dict__", None) is not table:
            module = None
        self.module = module
        self.values: dict[str, Any] = {}
        self.trusted = bool(module) and trusted(module)  # type: ignore[arg-type]
        found = table.get("__builtins__", builtins)
        self.builtins = found if isinstance(found, dict) else vars(found)

    def source(self, s: Any, name: str) -> Source | None:
        if self.trusted:
            return None
        if self.module is None:
            return s.bind(self.table, "globals").item(name)
        return Global(name, self.module)

    def load(self, s: Any, name: str) -> Value | None:
        """The global or builtin; None if there is none."""
        found = self.values.get(name)
        if found is None:
            if name in self.table:
                found = s.wrap(self.table[name], self.source(s, name))
            elif name in self.builtins:
                found = s.wrap(self.builtins[name], None)
            else:
                return None
            self.values[name] = found
        return None if found is MISSING else found

    def store(self, s: Any, name: str, value: Any) -> None:
        self.values[name] = value
        s.effects.store_global(self, name, value)

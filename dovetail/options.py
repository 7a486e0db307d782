"""One frozen object holds every choice of one compilation; it is passed down, never looked up.

`Options` is built once by `dovetail.compile` from its arguments, `dovetail.config` and the
environment, and the key of every cache is derived from it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True)
class Options:
    """The choices of one `dovetail.compile` call."""

    backend: Any = "dovetail"
    mode: str = "default"
    fullgraph: bool = False
    dynamic: bool | None = None
    numerics: str = "default"  # or "eager": round where eager rounds
    fallback_random: bool = False
    recompile_limit: int = 8
    suppress_errors: bool = False
    debug_dir: str | None = None

    def cache_key(self) -> tuple[Any, ...]:
        """Equal keys promise equal code from equal graphs."""
        return tuple((f.name, getattr(self, f.name)) for f in fields(self) if f.name != "debug_dir")

"""One frozen object holds every choice of one compilation; it is passed down, never looked up.

`Options` is built by `dovetail.compile` from its arguments and `dovetail.config`, and the key of every
cache is derived from it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dovetail.errors import InvalidArgument

#: What may be called after the graph instead of ending it, unless the user says otherwise.
REORDERABLE: frozenset[Any] = frozenset(
    (
        print, warnings.warn, logging.Logger.debug, logging.Logger.info, logging.Logger.warning, logging.Logger.error,
        logging.Logger.exception, logging.Logger.critical, logging.Logger.log,
    )
)  # fmt: skip

WITHOUT_GRAPHS = "max-autotune-no-cudagraphs"
MODES = ("default", "reduce-overhead", "max-autotune", WITHOUT_GRAPHS)


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
    strict: bool = False  # errors of ours and of backends are raised
    suppress_errors: bool = False  # they are not, whatever `strict` and `fullgraph` say
    capture_scalar_outputs: bool = False  # what item() and tolist() give stays in the graph
    capture_dynamic_output_shape_ops: bool = True  # sizes that depend on values stay in the graph
    trace_numpy: bool = True  # NumPy's functions are part of graphs
    cudagraphs: bool = True  # launches are recorded, where that is safe and the mode does not say otherwise
    fewer_collectives: bool = False  # equal ones are joined, and sums reduced once: all processes compile the same
    check_kernels: bool = False  # every access against its buffer's extent, every library call against its promise
    debug_dir: str | None = None
    reorderable_logging_functions: frozenset[Any] = REORDERABLE
    buckets: tuple[int, int] | None = None  # bytes of gradients that leave a backward pass together, at first and later
    standalone: bool = False  # the graph is kept without its guards: it runs in any grad mode

    @property
    def without_graphs(self) -> str:
        """Why there shall be no CUDA graphs; empty if there may be."""
        if self.mode == WITHOUT_GRAPHS:
            return "the mode has them off"
        return "" if self.cudagraphs else "config.cudagraphs is off"

    def cache_key(self) -> tuple:
        """Equal keys promise equal code from equal graphs."""
        return tuple((f.name, getattr(self, f.name)) for f in fields(self) if f.name not in _NO_EFFECT_ON_CODE)


_NO_EFFECT_ON_CODE = frozenset({
    "debug_dir", "recompile_limit", "strict", "suppress_errors", "fullgraph",
    "reorderable_logging_functions",
})  # fmt: skip

#: What `dovetail.compile(options={...})` may set, and the types accepted.
USER_OPTIONS: dict[str, tuple[type, ...]] = {
    "numerics": (str,),
    "fallback_random": (bool,),
    "cudagraphs": (bool,),
    "fewer_collectives": (bool,),
    "recompile_limit": (int,),
    "strict": (bool,),
    "suppress_errors": (bool,),
}


def checked_mode(mode: str | None, options: Mapping[str, Any] | None) -> str:
    """A valid mode; raises InvalidArgument for an unknown one, or for a mode together with options."""
    if mode is not None and options is not None:
        raise InvalidArgument("give either mode or options, not both")
    if mode is not None and mode not in MODES:
        raise InvalidArgument(f"unknown mode {mode!r}; the modes are {', '.join(map(repr, MODES))}")
    return mode or "default"


def checked_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The user's options; raises InvalidArgument naming the valid ones."""
    if options is not None and not isinstance(options, Mapping):
        raise InvalidArgument(f"options must be a dictionary, not {type(options).__name__}")
    for name, value in (options or {}).items():
        if name not in USER_OPTIONS:
            raise InvalidArgument(f"unknown option {name!r}; the options are {', '.join(map(repr, USER_OPTIONS))}")
        accepts = USER_OPTIONS[name]
        if not isinstance(value, accepts) or isinstance(value, bool) and bool not in accepts:
            raise InvalidArgument(f"option {name!r} must be {accepts[0].__name__}, not {value!r}")
    if (options or {}).get("numerics", "default") not in ("default", "eager"):
        raise InvalidArgument("option 'numerics' must be 'default' or 'eager'")
    return dict(options or {})


GUARD_FILTER = "guard_filter_fn"  # among the options, as PyTorch has it; no choice that code depends on


def without_filter(options: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, Any]:
    """The options but the filter of guards, and that; raises InvalidArgument where it is no function."""
    if not isinstance(options, Mapping) or GUARD_FILTER not in options:
        return options, None
    found = options[GUARD_FILTER]
    if found is not None and not callable(found):
        raise InvalidArgument(f"option {GUARD_FILTER!r} must be a function of a list of guards, not {found!r}")
    return {name: value for name, value in options.items() if name != GUARD_FILTER}, found


def apart(options: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that are Dovetail's, and the others, which a user's backend may know."""
    given = dict(options or {}) if isinstance(options, Mapping | None) else checked_options(options)
    return {n: v for n, v in given.items() if n in USER_OPTIONS}, {
        n: v for n, v in given.items() if n not in USER_OPTIONS
    }


def checked_limit(recompile_limit: int | None, options: Mapping[str, Any] | None) -> dict[str, int]:
    """The argument as an option; raises InvalidArgument where it is no positive number or is among the options."""
    if recompile_limit is None:
        return {}
    if type(recompile_limit) is not int or recompile_limit < 1:
        raise InvalidArgument(f"recompile_limit must be a positive int or None, not {recompile_limit!r}")
    if "recompile_limit" in (options or {}):
        raise InvalidArgument("give recompile_limit as an argument or among the options, not both")
    return {"recompile_limit": recompile_limit}

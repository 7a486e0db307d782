"""The settings. `dovetail.config.recompile_limit = 4` sets one; each is also an environment variable.

    with dovetail.config.patch(recompile_limit=4): ...      # for a block, or as a decorator
    DOVETAIL_RECOMPILE_LIMIT=4 python script.py             # for a process; there are others, such as DOVETAIL_LOGS

A setting is read when a function is compiled, not when it was decorated. Unknown names and values of
the wrong type raise `InvalidArgument`; in the environment they are named, the default
counts, and no program is stopped.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dovetail.errors import InvalidArgument
from dovetail.options import REORDERABLE

PREFIX = "DOVETAIL_"
#: Those that are no settings.
OTHERS: dict[str, str] = {
    "LOGS": "Which logs to show; `help` lists them.",
    "LOGS_OUT": "The file that logs are written to.",
    "TRACE": "The folder that everything that is compiled is recorded in; `dovetail report` makes a page of it.",
    "INSTALL": "1: `import dovetail` puts Dovetail under the names of torch.compile and torch.compiler.",
    "CACHE_DIR": "Where compiled kernels are kept; empty: nowhere.",
}


def said(error: InvalidArgument) -> None:
    """On the standard error, unless the program's handlers of the logger `dovetail` say otherwise."""
    logging.getLogger("dovetail").warning("%s", error)


def tolerated(use: Callable[[], Any], otherwise: Any = None) -> Any:
    """What `use` gives; where it refuses a variable's value, that is said and `otherwise` counts."""
    try:
        return use()
    except InvalidArgument as error:
        said(error)
        return otherwise


def check_names(settings: Iterable[str]) -> None:
    """Name the variables that nothing reads, each with one that it may have been meant as."""
    known = [name.upper() for name in (*settings, *OTHERS)]
    given = sorted(name.removeprefix(PREFIX) for name in os.environ if name.startswith(PREFIX))
    for name in (name for name in given if name not in known):
        meant = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {PREFIX}{meant[0]}?" if meant else f"there are {', '.join(PREFIX + k for k in known)}"
        said(InvalidArgument(f"nothing reads the environment variable {PREFIX}{name}; {hint}"))


@dataclass(frozen=True)
class Setting:
    """One setting: its default, what it accepts and what it means."""

    name: str
    default: Any
    accepts: tuple[type, ...]
    doc: str
    choices: tuple = ()

    def checked(self, value: Any) -> Any:
        wrong_bool = isinstance(value, bool) and bool not in self.accepts
        if not isinstance(value, self.accepts) or wrong_bool:
            wanted = " or ".join("None" if t is type(None) else t.__name__ for t in self.accepts)
            raise InvalidArgument(f"config.{self.name} must be {wanted}, not {value!r}")
        if self.choices and value not in self.choices:
            raise InvalidArgument(f"config.{self.name} must be one of {listed(self.choices)}, not {value!r}")
        return value

    def parsed(self, text: str) -> Any:
        """The value of an environment variable."""
        try:
            parse = _PARSERS[type(None) if self.default is None else type(self.default)]
            return self.checked(parse(text))
        except (ValueError, KeyError, InvalidArgument):
            taken = listed(self.choices) if self.choices else _WORDS.get(type(self.default), "a text")
            raise InvalidArgument(
                f"DOVETAIL_{self.name.upper()} takes {taken}, not {text!r}: {self.doc}"
            ) from None


_TRUTH = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off", ""), False)}
_PARSERS: dict[type, Callable[[str], Any]] = {
    bool: lambda text: _TRUTH[text.lower()], int: int, str: str, type(None): lambda text: text or None,
}  # fmt: skip

_IN_PROGRAM = "nothing: set it in the program"
_WORDS = {bool: "1 or 0", int: "an integer", set: _IN_PROGRAM, frozenset: _IN_PROGRAM}

SETTINGS: dict[str, Setting] = {
    s.name: s
    for s in (
        Setting("recompile_limit", 8, (int,), "Entries a function may have for calls of one kind; more run eagerly."),
        Setting("strict", False, (bool,), "Raise at internal errors and backends' instead of going on in eager mode."),
        Setting("suppress_errors", False, (bool,), "Go on in eager mode at them all the same, under fullgraph too."),
        Setting("fallback_random", False, (bool,), "Random numbers equal to eager's, value by value, on GPUs too."),
        Setting("numerics", "default", (str,), "'eager' rounds at the same points as eager.", ("default", "eager")),
        Setting(
            "check_kernels", False, (bool,),
            "Kernels check every access, and library calls what they are given; slow, and a KernelFault if wrong.",
        ),
        Setting("compile_debug", False, (bool,), "Write every stage's text to a folder for each compilation."),
        Setting("debug_dir", "dovetail_debug", (str,), "The folder that compile_debug writes to."),
        Setting("capture_scalar_outputs", False, (bool,), "Keep what item() and tolist() give in the graph."),
        Setting(
            "capture_dynamic_output_shape_ops", True, (bool,),
            "Keep operators in the graph whose results have sizes that depend on values, and integers used as sizes.",
        ),
        Setting("debug_function", None, (str, type(None)), "Compile only functions of this name."),
        Setting("cudagraphs", True, (bool,), "Record CUDA graphs where that is safe."),
        Setting(
            "fewer_collectives", False, (bool,),
            "Join equal collectives, and reduce a sum of partial results once: all processes must compile the same "
            "graphs, and none may go on in eager mode.",
        ),
        Setting(
            "repro_after", None, (str, type(None)),
            "What values are compared with at repro_level 4: the captured graph, or that of PyTorch's operators (aot).",
            (None, "capture", "dynamo", "aot"),
        ),
        Setting(
            "repro_level", 2, (int,),
            "0: failures leave no file; 1, 2: one that shows it again; 3: it is cut down; 4: wrong values count, too.",
            (0, 1, 2, 3, 4),
        ),
        Setting(
            "repro_data", False, (bool,),
            "Repros keep the data of tensors, in a file beside them; else the metadata alone.",
        ),
        Setting(
            "repro_dir", None, (str, type(None)),
            "The folder that repro files get folders of their own in; else that for temporary files.",
        ),
        Setting("warm_start", True, (bool,), "Leave whole compilations on disk, and take those of other processes."),
        Setting("cache_mib", 4096, (int,), "MiB that kernels and compilations on disk may take; the least used go."),
        Setting("trace_numpy", True, (bool,), "Take NumPy's functions into graphs."),
        Setting(
            "reorderable_logging_functions", REORDERABLE, (set, frozenset),
            "Functions that are called after the graph, in order, instead of ending it.",
        ),
        Setting("dynamic_shapes", True, (bool,), "Sizes and numbers that change become inputs; else constants."),
        Setting(
            "verbose", False, (bool,),
            "Recompile messages list every failed guard, not the first only; tracebacks keep Dovetail's own frames.",
        ),
    )
}


#: What does the work of settings that PyTorch's documents name, or once named.
INSTEAD: dict[str, str] = {
    "cache_size_limit": "the limit is recompile_limit",
    "log_level": "levels are chosen with dovetail.set_logs and DOVETAIL_LOGS",
    "replay_record_enabled": "a failure leaves a file that calls the function again: repro_level and repro_dir",
    "capture_func_transforms": "transforms are always captured",
    "triton": "CUDA graphs are turned off with cudagraphs",
    "trace": "compile_debug writes the texts of all stages",
}


def switched_on(name: str) -> bool:
    """Is a variable that is no setting set to 1?"""
    switch = Setting(name.lower(), False, (bool,), OTHERS[name])
    return bool(tolerated(partial(switch.parsed, os.environ.get(PREFIX + name, "")), False))


def listed(names: Any) -> str:
    """For a message."""
    return ", ".join(map(repr, names))


class Config:
    """The object behind `dovetail.config`; attributes are the rows of `SETTINGS`."""

    __slots__ = ("_values",)

    def __init__(self, environment: Mapping[str, str]) -> None:
        values = {s.name: set(s.default) if set in s.accepts else s.default for s in SETTINGS.values()}
        for setting in SETTINGS.values():
            text = environment.get(f"DOVETAIL_{setting.name.upper()}")
            if text is not None:
                values[setting.name] = tolerated(partial(setting.parsed, text), values[setting.name])
        object.__setattr__(self, "_values", values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._values[_known(name)]

    def __setattr__(self, name: str, value: Any) -> None:
        setting = SETTINGS[_known(name)]
        self._values[name] = setting.checked(value)

    def __dir__(self) -> list[str]:
        return [*SETTINGS, "patch", "to_dict"]

    def __repr__(self) -> str:
        return "dovetail.config(" + ", ".join(f"{n}={v!r}" for n, v in self._values.items()) + ")"

    def to_dict(self) -> dict[str, Any]:
        """Every setting's present value."""
        return dict(self._values)

    @contextlib.contextmanager
    def patch(self, **changes: Any) -> Iterator[None]:
        """Settings for a `with` block or, as a decorator, for each call of a function."""
        checked = {_known(n): SETTINGS[n].checked(v) for n, v in changes.items()}
        before = {n: self._values[n] for n in checked}
        self._values.update(checked)
        try:
            yield
        finally:
            self._values.update(before)


def _known(name: str) -> str:
    if name not in SETTINGS:
        raise InvalidArgument(
            f"there is no setting {name!r}; {INSTEAD.get(name) or f'the settings are {listed(SETTINGS)}'}"
        )
    return name


config = Config(os.environ)
check_names(SETTINGS)

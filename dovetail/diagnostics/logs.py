"""`DOVETAIL_LOGS="guards,+recompiles,-perf_hints"` and `dovetail.set_logs(guards=True)`.

Each name is a logger `dovetail.<name>`: `name` shows its messages, `+name` those for debugging too, `-name`
only errors. `all` stands for every name. What nobody asked for is never even formatted.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from dovetail.diagnostics.events import CompileRecord
from dovetail.errors import InvalidArgument

NAMES: dict[str, str] = {
    "graph_breaks": "why a graph ended early, with the user's stack",
    "guards": "the generated guard function of each entry",
    "recompiles": "the first guard that failed, for each recompilation",
    "recompiles_verbose": "every guard that failed, for each recompilation",
    "dynamic": "decisions about dynamic sizes",
    "graph": "the captured graph as a table",
    "graph_code": "the captured graph as Python",
    "graph_sizes": "the sizes of the captured graph's tensors",
    "trace_bytecode": "each bytecode instruction that capture runs",
    "trace_source": "each source line that capture runs",
    "bytecode": "the residual program: what runs around the graph",
    "aot_graphs": "the functional ATen graph",
    "aot_joint_graphs": "the joint forward and backward graph",
    "lowered": "the loop program before fusion",
    "schedule": "the loop program after fusion",
    "fusion": "what was fused, what was not, and why",
    "output_code": "the generated host program",
    "kernel_code": "the generated kernels",
    "perf_hints": "what keeps a program from being faster",
}
_LEVELS = {"+": logging.DEBUG, "": logging.INFO, "-": logging.ERROR}
_ROOT = "dovetail"

#: A program that shows its own messages, by a level of the root logger, has not asked for the texts of every stage.
if logging.getLogger(_ROOT).level == logging.NOTSET:
    logging.getLogger(_ROOT).setLevel(logging.WARNING)


def parse(text: str) -> dict[str, int]:
    """Levels by name; raises InvalidArgument naming the valid ones."""
    levels: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        sign = item[0] if item[0] in "+-" else ""
        name = item[len(sign) :]
        levels.update(dict.fromkeys(NAMES, _LEVELS[sign]) if name == "all" else {_known(name): _LEVELS[sign]})
    return levels


def _known(name: str) -> str:
    if name not in NAMES:
        raise InvalidArgument(f"unknown log {name!r}; the logs are all, {', '.join(NAMES)}")
    return name


def set_logs(levels: Mapping[str, Any] | None = None, **named: Any) -> None:
    """Choose the logs to show: `set_logs(guards=True, graph_code=False, recompiles=logging.DEBUG)`.

    Replaces what was chosen before; with no argument nothing is shown. Raises InvalidArgument for an unknown name.
    """
    chosen = {**(levels or {}), **named}
    if "all" in chosen:
        every = chosen.pop("all")
        chosen = {**dict.fromkeys(NAMES, every), **chosen}
    resolved = {_known(name): _level(name, value) for name, value in chosen.items()}
    root = logging.getLogger(_ROOT)
    shown = any(level < logging.WARNING for level in resolved.values())
    for handler in [h for h in root.handlers if isinstance(h, _Stream)]:
        root.removeHandler(handler)
    if shown:
        root.addHandler(_Stream())
    root.propagate = not shown
    for name in NAMES:
        logging.getLogger(f"{_ROOT}.{name}").setLevel(resolved.get(name, logging.NOTSET))


def _level(name: str, value: Any) -> int:
    if isinstance(value, bool):
        return logging.INFO if value else logging.NOTSET
    if isinstance(value, int):
        return value
    raise InvalidArgument(f"set_logs({name}=...) takes True, False or a logging level, not {value!r}")


class _Stream(logging.StreamHandler[Any]):
    """Writes to the standard error of the moment, so that tests and notebooks can redirect it."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


@functools.cache
def _logger(name: str) -> logging.Logger:
    """Asked for once: `getLogger` takes a lock of the process, which Ctrl-C at that moment leaves taken, and every
    compilation asks whether its logs are on."""
    return logging.getLogger(f"{_ROOT}.{name}")


def is_on(name: str) -> bool:
    return _logger(name).getEffectiveLevel() <= logging.INFO


def log(name: str, message: str) -> None:
    _logger(name).info("%s", message)


def detail(name: str, message: str) -> None:
    """For those who asked for `+name`."""
    _logger(name).debug("%s", message)


class LogSink:
    """Shows artifacts whose log is on."""

    def wants(self, kind: str) -> bool:
        return kind in NAMES and is_on(kind)

    def stream(self, kind: str) -> Callable[[str], None] | None:
        """Where lines of this kind go as they come; None if nobody wants them."""
        return functools.partial(log, kind) if is_on(kind) else None

    def write(self, record: CompileRecord, kind: str, text: str) -> None:
        log(kind, f"[{record.function} #{record.index}] {kind}\n{text.rstrip()}\n")

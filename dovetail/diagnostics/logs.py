"""`DOVETAIL_LOGS="guards,+dynamo,-perf_hints"` and `dovetail.set_logs(guards=True)`.

Each name is a logger `dovetail.<name>`: `name` shows its messages, `+name` those for debugging too, `-name` only
errors. A component (`dynamo`, `aot`, `inductor`) stands for the names of a part of the compiler, with `+` for the
longest texts too, and `all` for every name. `help` prints the list. What nobody asked for is never even formatted.

Messages go to the standard error, or to the file that DOVETAIL_LOGS_OUT names. The head of each has the time, the rank
of a distributed program, the line of the program that it is about, and the log's name.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from dovetail.config import tolerated
from dovetail.diagnostics.events import CompileRecord
from dovetail.errors import InvalidArgument
from dovetail.ir.callers import users_line
from dovetail.ir.ranks import marked
from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class Log:
    """What a name shows, the component that it belongs to, and whether the component shows it only with `+`."""

    text: str
    component: str
    long: bool = False


COMPONENTS: dict[str, str] = {
    "dynamo": "capture: bytecode, guards, graph breaks, recompilations",
    "aot": "the graphs of PyTorch's operators, forward and backward",
    "inductor": "fusion and generated code",
}
NAMES: dict[str, Log] = {
    "graph_breaks": Log("why a graph ended early, with the user's stack", "dynamo"),
    "guards": Log("the generated guard function of each entry", "dynamo", long=True),
    "recompiles": Log("the first guard that failed, for each recompilation", "dynamo"),
    "recompiles_verbose": Log("every guard that failed, for each recompilation", "dynamo", long=True),
    "dynamic": Log("decisions about dynamic sizes", "dynamo"),
    "graph": Log("the captured graph as a table", "dynamo", long=True),
    "graph_code": Log("the captured graph as Python", "dynamo"),
    "graph_sizes": Log("the sizes of the captured graph's tensors", "dynamo", long=True),
    "trace_bytecode": Log("each bytecode instruction that capture runs", "dynamo", long=True),
    "trace_source": Log("each source line that capture runs", "dynamo", long=True),
    "bytecode": Log("the residual program: what runs around the graph", "dynamo", long=True),
    "aot_graphs": Log("the functional ATen graph", "aot"),
    "aot_joint_graphs": Log("the joint forward and backward graph", "aot"),
    "lowered": Log("the loop program before fusion", "inductor", long=True),
    "schedule": Log("the loop program after fusion", "inductor", long=True),
    "fusion": Log("what was fused, what was not, and why", "inductor", long=True),
    "output_code": Log("the generated host program, and the call around it", "inductor"),
    "kernel_code": Log("the generated kernels", "inductor", long=True),
    "perf_hints": Log("what keeps a program from being faster", "inductor"),
}
OUT = "DOVETAIL_LOGS_OUT"
_LEVELS = {"+": logging.DEBUG, "": logging.INFO, "-": logging.ERROR}
_ROOT = "dovetail"

#: A program that shows its own messages, by a level of the root logger, has not asked for the texts of every stage.
if logging.getLogger(_ROOT).level == logging.NOTSET:
    logging.getLogger(_ROOT).setLevel(logging.WARNING)


def listing() -> str:
    """Every name, as `DOVETAIL_LOGS=help` and `dovetail logs` print it."""
    rows = ["DOVETAIL_LOGS takes, with commas between them: NAME, +NAME (more), -NAME (errors only), all, help", ""]
    for component, about in COMPONENTS.items():
        rows.append(f"{component:20} {about}")
        of_it = {name: log for name, log in NAMES.items() if log.component == component}
        rows += [f"  {name:18} {log.text}{' (+' + component + ')' if log.long else ''}" for name, log in of_it.items()]
    rows += ["", f"{OUT}=FILE writes them to a file."]
    return "\n".join(rows)


def parse(text: str) -> dict[str, int]:
    """Levels by name; raises InvalidArgument naming the valid ones."""
    levels: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        sign = item[0] if item[0] in "+-" else ""
        levels.update(_named(item[len(sign) :], _LEVELS[sign]))
    return levels


def set_from(variable: str) -> None:
    """Choose the logs of the environment's variable; items that name none are said, and the others count."""
    levels: dict[str, int] = {}
    for item in map(str.strip, variable.split(",")):
        if item == "help":
            print(listing(), file=sys.stderr)
        else:
            levels |= tolerated(functools.partial(parse, item), {})
    if levels:
        set_logs(levels)


def _named(name: str, level: int) -> dict[str, int]:
    """The levels of the logs that a name stands for."""
    if name == "all":
        return dict.fromkeys(NAMES, level)
    if name in COMPONENTS:
        of_it = {n: log for n, log in NAMES.items() if log.component == name}
        return {n: level for n, log in of_it.items() if not (log.long and level == logging.INFO)}
    if name not in NAMES:
        raise InvalidArgument(f"unknown log {name!r}; the logs are all, {', '.join((*COMPONENTS, *NAMES))}")
    return {name: level}


def set_logs(levels: Mapping[str, Any] | None = None, **named: Any) -> None:
    """Choose the logs to show: `set_logs(guards=True, graph_code=False, dynamo=logging.DEBUG)`.

    Takes names, components and `all`; the narrower one counts. Replaces what was chosen before; with no argument
    nothing is shown. Raises InvalidArgument for an unknown name.
    """
    chosen = {**(levels or {}), **named}
    resolved: dict[str, int] = {}
    for name in sorted(chosen, key=lambda name: (name in NAMES, name in COMPONENTS)):
        resolved |= _named(name, _level(name, chosen[name]))
    root = logging.getLogger(_ROOT)
    shown = any(level and level < logging.WARNING for level in resolved.values())
    for handler in [h for h in root.handlers if isinstance(h, (_Stream, _File))]:
        root.removeHandler(handler)
        handler.close()
    if shown:
        root.addHandler(_handler())
    root.propagate = not shown
    for name in NAMES:
        logging.getLogger(f"{_ROOT}.{name}").setLevel(resolved.get(name, logging.NOTSET))


def _level(name: str, value: Any) -> int:
    if isinstance(value, bool):
        return logging.INFO if value else logging.NOTSET
    if isinstance(value, int):
        return value
    raise InvalidArgument(f"set_logs({name}=...) takes True, False or a logging level, not {value!r}")


class _Heads(logging.Formatter):
    """`13:05:07.250 [rank1] model.py:41 guards: ` before each message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        place = getattr(record, "place", "")
        name = record.name.removeprefix(f"{_ROOT}.")
        record.message = marked(f"{os.path.basename(place)} {name}: {record.message}")
        return super().formatMessage(record)


class _Stream(logging.StreamHandler[Any]):
    """Writes to the standard error of the moment, so that tests and notebooks can redirect it."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _File(logging.FileHandler):
    """Appends to a file."""


def _handler() -> logging.Handler:
    """To the file that is asked for, if it can be written to."""
    path, made = os.environ.get(OUT), None
    try:
        made = _File(path) if path else None
    except OSError as error:
        logging.getLogger(_ROOT).warning("%s=%s cannot be written to: %s", OUT, path, error)
    handler: logging.Handler = made or _Stream()
    handler.setFormatter(_Heads())
    return handler


@functools.cache
def _logger(name: str) -> logging.Logger:
    """Asked for once: `getLogger` takes a lock of the process, which Ctrl-C at that moment leaves taken, and every
    compilation asks whether its logs are on."""
    return logging.getLogger(f"{_ROOT}.{name}")


def is_on(name: str) -> bool:
    return _logger(name).getEffectiveLevel() <= logging.INFO


def log(name: str, message: str, place: str = "") -> None:
    """`place` is the line, "file:number", that it is about: by default the program's own that led here."""
    _put(name, logging.INFO, message, place)


def detail(name: str, message: str) -> None:
    """For those who asked for `+name`."""
    _put(name, logging.DEBUG, message, "")


def _put(name: str, level: int, message: str, place: str) -> None:
    logger = _logger(name)
    if logger.getEffectiveLevel() <= level:
        logger.log(level, "%s", message, extra={"place": place or "{}:{}".format(*users_line())})


#: Texts that are shown where others are.
_WITH = {"call_code": "output_code"}


class LogSink:
    """Shows artifacts whose log is on."""

    def wants(self, kind: str) -> bool:
        name = _WITH.get(kind, kind)
        return name in NAMES and is_on(name)

    def stream(self, kind: str) -> Callable[[str], None] | None:
        """Where lines of this kind go as they come; None if nobody wants them."""
        return functools.partial(log, kind) if is_on(kind) else None

    def write(self, record: CompileRecord, kind: str, text: str) -> None:
        if text.strip():
            log(_WITH.get(kind, kind), f"[{record.function} #{record.index}]\n{text.rstrip()}\n", record.place)

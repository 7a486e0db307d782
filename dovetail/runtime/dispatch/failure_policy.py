"""What a failed compilation means for the program: the one place where this is decided.

| what failed | fullgraph or strict | suppress_errors | otherwise |
|---|---|---|---|
| the program raises for these arguments | eager: it raises the program's own error | the same | the same |
| it does not, though capture has said so | InternalError | eager, one warning | eager, one warning |
| the code cannot be captured (Unsupported) | fullgraph: GraphBreakError | fullgraph: the same | eager, one warning |
| the compiled function is marked with disable, or skips itself | the same | the same | eager |
| compiled code is wrong, as check_kernels found (KernelFault) | raised | raised | raised |
| a marked dimension became a constant | raised | eager, one warning | raised |
| a backend raised (BackendError) | raised | eager, one warning | eager, one warning |
| anything else | eager's error if eager raises, else InternalError | eager, one warning | eager, one warning |

A program that raises while it runs, and that has changed nothing, is followed by eager and the same rules
(`EagerlyAfter`). One that has changed something raises as it is.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import TracebackType
from typing import Any

import torch

from dovetail.errors import (
    DovetailError,
    GraphBreakError,
    InternalError,
    InvalidArgument,
    KernelFault,
    SpecializedDimension,
    Unsupported,
)
from dovetail.ir.callers import OURS, users_line
from dovetail.ir.checks import OtherSizes
from dovetail.ir.copies import copies
from dovetail.ir.literals import error_in_words
from dovetail.ir.ranks import marked
from dovetail.ir.records import dataclass
from dovetail.ir.recursion_limit import NEAR, Room
from dovetail.runtime.dispatch.restore_modes import mode_state, restore


@dataclass(frozen=True)
class Fallback:
    """The call that could not be compiled, to be run as it is."""

    fn: Callable[..., Any]
    args: tuple
    kwargs: Mapping[str, Any]
    where: str
    quiet: bool = False  # has what is to be told been told?

    def run(self) -> Any:
        return self.fn(*self.args, **self.kwargs)

    def warn(self, why: Callable[[], str]) -> None:
        if not self.quiet:
            warn_user(eagerly(self.where, why()))


#: Told of each warning, whether Python shows it or not.
LISTENERS: list[Callable[[str], None]] = []


def warn_user(message: str) -> None:
    """A warning at the line outside this package, and PyTorch's, that led here, with the rank that it is about."""
    message = marked(message)
    for listener in LISTENERS:
        listener(message)
    warnings.warn(message, stacklevel=users_line()[2] + 1)


#: A checkpoint that computes again has all that it wants: its hook on saved tensors ends the call. Effects of the
#: program, which come after the graph, are then left out this second time. Or what it has is not what it wants.
STOP: Any = (getattr(torch.utils.checkpoint, "_StopRecomputationError", ()), torch.utils.checkpoint.CheckpointError)


def eagerly(where: str, why: str) -> str:
    """What the program is told of a function that runs as it is."""
    return f"dovetail runs {where} eagerly, since {why}"


def on_failure(error: Exception, call: Fallback, options: Any) -> None:
    """Return when the call is to run eagerly; raise what the user must see otherwise."""
    if is_users_own(error):
        return
    if isinstance(error, KernelFault):
        raise error
    if isinstance(error, Unsupported):
        if options.fullgraph or error.strict:
            raise _as_graph_break(error) from error
        if not _asked_for(error):  # by the author of the compiled function
            call.warn(lambda: f"it could not compile it: {error}")
    elif goes_on(error, options):
        call.warn(lambda: told(error))
    elif isinstance(error, DovetailError):
        raise error
    else:
        _raise_as_eager(call)
        raise _as_internal(error) from error


def goes_on(error: BaseException, options: Any) -> bool:
    """Does a failure of ours, or of a backend, leave the program running in eager mode?"""
    asks = isinstance(error, (SpecializedDimension, InvalidArgument))  # the program is to hear of it
    return options.suppress_errors or not (options.fullgraph or options.strict or asks)


REPORT = "_dovetail_report"  # an attribute of errors: makes of the error the text that tells all there is to tell


def told(error: BaseException) -> str:
    report = getattr(error, REPORT, None)
    return str(report(error)) if report is not None else f"{_stage(error)} failed: {error_in_words(error)}"


def not_raised(error: Exception, call: Fallback, options: Any) -> None:
    """Capture has said that the program raises `error`, and it has just run without: a mistake of ours."""
    wrong = InternalError("capture", f"{error}, so capture has said; the program does not")
    if not goes_on(wrong, options):
        raise wrong from error
    call.warn(lambda: f"it could not compile it: {wrong}")


def _asked_for(error: Unsupported) -> bool:
    """The compiled function itself is marked (no frame was entered), or calls skip_frame."""
    return error.code == "skipped-frame" or error.code == "disabled-function" and not error.stack


class Needed:
    """An entry is used as long as this exists."""


@dataclass
class EagerlyAfter:
    """What goes on when a graph has raised that changed nothing: the program `fn`, which knows what to do about it.

    If the captured graph raises in PyTorch too, the program has handled its own error. A size that turns out to be
    another one than the graph was made for is nothing to warn of. Otherwise it is a failure of ours. Where it happens
    too often, nobody keeps `needed` any longer, and `give_up` gets the options that the next entry has.
    """

    OFTEN = 4

    fn: Callable[..., Any]
    where: str
    options: Any
    log: Callable[[str, str], None]
    give_up: Callable[[dict[str, Any]], None]
    quiet: bool = False
    needed: Needed | None = field(default_factory=Needed)
    others: int = 0
    failures: int = 0
    #: Set once there is an entry: loads the graph's inputs, runs the graph in PyTorch, makes what `told` is to tell.
    inputs: Callable[[tuple, Mapping[str, Any]], Sequence[Any] | None] = lambda args, kwargs: None
    graph: Callable[..., Any] | None = None
    report: Callable[[str, Sequence[Any], BaseException], str] | None = None

    def __call__(self, error: Exception, /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(error, (KernelFault, STOP)):
            raise error
        if isinstance(error, OtherSizes):
            result = self.fn(*args, **kwargs)
            self.log("dynamic", f"{self.where} runs eagerly: its graph was made for {error}")
            self.others += 1
            if self.others == self.OFTEN:
                self.replace_entry(capture_dynamic_output_shape_ops=False)
            return result
        if isinstance(error, RecursionError):
            with Room(NEAR):  # the graph needs more of the stack than the program
                return self.fn(*args, **kwargs)
        inputs = self.inputs(args, kwargs)
        own = inputs is not None and self.graph is not None and raised(self.graph, inputs) is not None
        result = self.fn(*args, **kwargs)
        if own:
            self.warn(f"its graph raises {error_in_words(error)}")
        else:
            self.failed("run", error, inputs or ())
        return result

    def failed(self, stage: str, error: Exception, inputs: Sequence[Any]) -> None:
        """Eager has done it instead. Raises where failures are to be raised."""
        if self.report is not None:
            setattr(error, REPORT, functools.partial(self.report, stage, inputs))
        if not goes_on(error, self.options):
            if isinstance(error, DovetailError) or callable(self.options.backend):
                raise error
            error.__dict__["_dovetail_stage"] = stage
            raise _as_internal(error) from error
        self.failures += 1
        if self.failures == 1:
            self.warn(told(error))
        if self.failures == self.OFTEN:
            self.replace_entry(backend="eager")

    def wrong(self, error: Exception, inputs: Sequence[Any]) -> None:
        """A call's values are not PyTorch's."""
        self.failed("values", error, inputs)

    def warn(self, why: str) -> None:
        if not self.quiet:
            warn_user(eagerly(self.where, why))

    def replace_entry(self, **options: Any) -> None:
        self.give_up(options)
        self.needed = None


def raised(graph: Callable[..., Any], inputs: Sequence[Any]) -> Exception | None:
    """What PyTorch raises for inputs like these. Nothing that the program sees is changed."""
    before = mode_state()
    with torch.random.fork_rng(devices=[]):
        try:
            graph(*copies(inputs)[0])
        except Exception as error:  # whatever it is, the program raises by itself
            return error
        finally:
            restore(before)
    return None


def is_users_own(error: Exception) -> bool:
    """Capture found that the program raises: not a failure to compile, and eager says it best."""
    return isinstance(error, Unsupported) and error.code == "user-exception"


def _as_graph_break(error: Unsupported) -> GraphBreakError:
    made = GraphBreakError(error.code, error.reason, error.remedy, error.stack, error.refusals)
    made.__traceback__ = None
    return made


def _stage(error: BaseException) -> str:
    return getattr(error, "_dovetail_stage", "compiling")


def _as_internal(error: Exception) -> InternalError:
    return InternalError(_stage(error), told(error).partition(" failed: ")[2])


def _raise_as_eager(call: Fallback) -> None:
    """Where the user's own code is at fault, eager raises the error that belongs to it, from its line."""
    call.run()


# ---------------------------------------------------------------- what the caller sees of an error


def cut(error: Exception) -> None:
    """Take our frames out of its traceback; of the errors that are ours only a mistake of ours keeps them."""
    if isinstance(error, (InternalError, KernelFault)):
        return
    if isinstance(error, GraphBreakError):
        error.__cause__, error.__suppress_context__ = None, True  # says the same, from within capture
    error.__traceback__ = None if isinstance(error, DovetailError) else _programs(error.__traceback__)


def _programs(found: TracebackType | None) -> TracebackType | None:
    """The entries of a traceback whose code is not ours."""
    kept = []
    while found is not None:
        if not found.tb_frame.f_code.co_filename.startswith(OURS):
            kept.append(found)
        found = found.tb_next
    rest: TracebackType | None = None
    for entry in reversed(kept):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest

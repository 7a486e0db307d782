"""What a failed compilation means for the program: the one place where this is decided.

| what failed | fullgraph | suppress_errors | otherwise |
|---|---|---|---|
| the program raises for these arguments | eager: it raises the program's own error | the same | the same |
| the code cannot be captured (Unsupported) | GraphBreakError | eager, one warning | eager, one warning |
| the compiled function is marked with disable, or skips itself | GraphBreakError | eager | eager |
| a backend raised (BackendError) | raised | eager, one warning | raised |
| anything else | eager's error if eager raises, else InternalError | eager, one warning | as under fullgraph |
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dovetail.errors import DovetailError, GraphBreakError, InternalError, Unsupported
from dovetail.ir.checks import OtherSizes
from dovetail.ir.literals import error_in_words


@dataclass(frozen=True)
class Fallback:
    """The call that could not be compiled, to be run as it is."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    where: str
    quiet: bool = False  # has what is to be told been told?

    def run(self) -> Any:
        return self.fn(*self.args, **self.kwargs)


def on_failure(error: Exception, call: Fallback, options: Any) -> None:
    """Return when the call is to run eagerly; raise what the user must see otherwise."""
    if is_users_own(error):
        return
    if isinstance(error, Unsupported) and (options.fullgraph or error.strict):
        raise _as_graph_break(error) from error
    if isinstance(error, Unsupported) and _asked_for(error):
        return  # what the author of the compiled function asks for
    if options.suppress_errors or isinstance(error, Unsupported):
        if not call.quiet:
            warnings.warn(f"dovetail runs {call.where} eagerly, since it could not compile it: {error}", stacklevel=6)
        return
    if isinstance(error, DovetailError):
        raise error
    _raise_as_eager(call)
    raise _as_internal(error) from error


def _asked_for(error: Unsupported) -> bool:
    """The compiled function itself is marked (no frame was entered), or calls skip_frame."""
    return error.code == "skipped-frame" or error.code == "disabled-function" and not error.stack


class Needed:
    """An entry is used as long as this exists."""


class EagerlyAfter:
    """What goes on when a graph has raised that changed nothing: the program `fn`, which knows what to do about it.

    A size that turns out to be another one than the graph was made for is nothing to warn of. Where that happens too
    often, nobody keeps `needed` any longer and `give_up` is called.
    """

    OFTEN = 4

    def __init__(
        self, fn: Callable[..., Any], where: str, log: Callable[[str, str], None], give_up: Callable[[], None]
    ) -> None:
        self.fn, self.where, self.log, self.give_up = fn, where, log, give_up
        self.needed: Needed | None = Needed()
        self.others = 0

    def __call__(self, error: Exception, /, *args: Any, **kwargs: Any) -> Any:
        result = self.fn(*args, **kwargs)
        if isinstance(error, OtherSizes):
            self.log("dynamic", f"{self.where} runs eagerly: its graph was made for {error}")
            self.others += 1
            if self.others == self.OFTEN:
                self.give_up()
                self.needed = None
            return result
        shown = f"its graph raises {error_in_words(error)}"
        warnings.warn(f"dovetail runs {self.where} eagerly, since {shown}", stacklevel=3)
        return result


def is_users_own(error: Exception) -> bool:
    """Capture found that the program raises: not a failure to compile, and eager says it best."""
    return isinstance(error, Unsupported) and error.code == "user-exception"


def _as_graph_break(error: Unsupported) -> GraphBreakError:
    made = GraphBreakError(error.code, error.reason, error.remedy, error.stack, error.refusals)
    made.__traceback__ = None
    return made


def _as_internal(error: Exception) -> InternalError:
    stage = getattr(error, "_dovetail_stage", "compiling")
    return InternalError(stage, error_in_words(error))


def _raise_as_eager(call: Fallback) -> None:
    """Where the user's own code is at fault, eager raises the error that belongs to it, from its line."""
    call.run()

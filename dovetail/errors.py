"""Every error that Dovetail raises on its own account.

    DovetailError
    ├── InvalidArgument (ValueError)   an argument of a public function: which, what was expected
    ├── Unsupported                    the user's code does something that cannot be compiled (yet)
    │   └── GraphBreakError            the same under fullgraph=True
    ├── InternalError                  a bug of ours; names the stage that failed
    │   └── VerificationError          an IR broke its own rules between two stages
    └── BackendError                   a custom backend raised; the original is the __cause__

An Unsupported carries a stable `code`, the user's stack, the reason in the user's words and a
remedy; `str()` prints them with the source line and a caret.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's program; columns count from 0 and -1 means unknown."""

    filename: str
    line: int
    function: str
    column: int = -1
    end_column: int = -1

    def excerpt(self) -> str:
        """The `File ...` line, the source line and a caret under the columns."""
        head = f'  File "{self.filename}", line {self.line}, in {self.function}'
        source = linecache.getline(self.filename, self.line).rstrip("\n")
        if not source.strip():
            return head
        text = source.lstrip()
        lines = [head, f"    {text}"]
        if 0 <= self.column < self.end_column:
            start = max(self.column - (len(source) - len(text)), 0)
            width = min(self.end_column, len(source)) - max(self.column, len(source) - len(text))
            lines.append("    " + " " * start + "^" * max(width, 1))
        return "\n".join(lines)


class DovetailError(Exception):
    """Base of every error of this package."""


class InvalidArgument(DovetailError, ValueError):
    """A public function was called with an argument that makes no sense."""


class Unsupported(DovetailError):
    """The user's code does something that cannot be part of a graph.

    `code` is stable and documented; `stack` is the user's, outermost first.
    """

    def __init__(
        self, code: str, reason: str, remedy: str = "", stack: tuple[Location, ...] = ()
    ) -> None:
        super().__init__(reason)
        self.code, self.reason, self.remedy, self.stack = code, reason, remedy, stack
        self.places: tuple[tuple[int, bool], ...] = ()  # capture's: where the graph could end instead

    def __str__(self) -> str:
        lines = [f"[{self.code}] {self.reason}"]
        lines += [place.excerpt() for place in self.stack]
        if self.remedy:
            lines.append(f"  What to do: {self.remedy}")
        return "\n".join(lines)


class GraphBreakError(Unsupported):
    """`fullgraph=True` and the code cannot be captured as one graph."""


class InternalError(DovetailError):
    """A stage failed on input that it should have handled."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(f"{stage}: {message}")
        self.stage = stage


class VerificationError(InternalError):
    """An intermediate program violates the rules of `ir/spec.py`."""


class BackendError(DovetailError):
    """A backend given by the user raised; see `__cause__`."""

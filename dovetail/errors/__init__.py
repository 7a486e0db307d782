"""Every error that Dovetail raises on its own account.

    DovetailError
    ├── InvalidArgument (ValueError)   an argument of a public function: which, what was expected
    ├── Unsupported                    the user's code does something that cannot be compiled (yet)
    │   └── GraphBreakError            the same under fullgraph=True
    ├── InternalError                  a bug of ours; names the stage that failed
    │   └── VerificationError          an IR broke its own rules between two stages
    ├── KernelFault                    under the setting check_kernels: compiled code is wrong; which and where
    ├── SpecializedDimension           a dimension marked dynamic became a constant
    └── BackendError                   a custom backend raised; the original is the __cause__

An Unsupported carries a stable `code`, the user's stack, the reason in the user's words and a
remedy; `str()` prints them with the source line and a caret.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass

from dovetail.errors.codes import CODES, explained_by


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's program; columns count from 0 and -1 means unknown."""

    filename: str
    line: int
    function: str
    column: int = -1
    end_column: int = -1

    def source(self) -> str:
        """The line's text; empty if the file cannot be read."""
        return linecache.getline(self.filename, self.line).strip()

    def entry(self) -> str:
        """The place as tracebacks show it."""
        head = f'  File "{self.filename}", line {self.line}, in {self.function}'
        return f"{head}\n    {self.source()}" if self.source() else head

    def excerpt(self) -> str:
        """The same with a caret under the columns."""
        carets = marked(linecache.getline(self.filename, self.line), self.column, self.end_column)[1:]
        return "\n".join([self.entry(), *(f"    {line}" for line in carets)])


def marked(source: str, column: int, end_column: int) -> list[str]:
    """A line without its indentation; if it is not empty and the columns are known, a line of carets under them.

    Columns count the bytes of UTF-8, as Python's do, of the line as it is in the file; one below 0 is unknown.
    """
    source = source.rstrip()
    text = source.lstrip()
    if not text or not 0 <= column < end_column:
        return [text]
    cut, line = len(source) - len(text), source.encode()
    start, end = (max(len(line[:c].decode(errors="ignore")) - cut, 0) for c in (column, end_column))
    before = "".join("\t" if letter == "\t" else " " for letter in text[:start])
    return [text, before + "^" * max(end - start, 1)]


class DovetailError(Exception):
    """Base of every error of this package."""


class InvalidArgument(DovetailError, ValueError):
    """A public function was called with an argument that makes no sense."""


class Unsupported(DovetailError):
    """The user's code does something that cannot be part of a graph.

    `code` is stable and documented; `stack` is the user's, outermost first; `refusals` say why the graph could not
    end there either. Without a remedy of its own it has that of its code.
    """

    def __init__(
        self, code: str, reason: str, remedy: str = "", stack: tuple[Location, ...] = (),
        refusals: tuple[str, ...] = (), break_candidates: tuple[tuple[int, bool], ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.code, self.reason, self.stack, self.refusals = code, reason, stack, refusals
        self.remedy = remedy or (CODES[code].remedy if code in CODES else "")
        self.break_candidates = break_candidates  # capture's: where the graph could end instead
        self.strict = False  # does the program ask for an error instead of a graph break here?

    def __str__(self) -> str:
        return explained(self.code, self.reason, self.remedy, self.stack, self.refusals)


def explained(
    code: str, reason: str, remedy: str, stack: tuple[Location, ...], refusals: tuple[str, ...] = ()
) -> str:
    """The message of a graph break: reason, the user's stack, why the graph could not end there, remedy, more."""
    lines = [f"[{code}] {reason}", *(place.excerpt() for place in stack)]
    lines += [f"  The graph cannot end there: {refusal}" for refusal in refusals]
    if remedy:
        lines.append(f"  What to do: {remedy}")
    if code in CODES:
        lines.append(f"  Explained by: {explained_by(code)}")
    return "\n".join(lines)


NOWHERE = ((0, False),)  # `Unsupported.break_candidates` of what only the whole frame in plain Python gets right


class GraphBreakError(Unsupported):
    """`fullgraph=True` and the code cannot be captured as one graph."""


class InternalError(DovetailError):
    """A stage failed on input that it should have handled."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(f"{stage}: {message}")
        self.stage = stage


class VerificationError(InternalError):
    """An intermediate program violates the rules of `ir/spec.py`."""


class KernelFault(DovetailError):
    """Compiled code does what it must not; `config.check_kernels` found it. Nothing goes on in eager mode after it.

    `kernel` is the kernel or operator, `buffer` the tensor in question, `stack` the user's lines that it computes.
    """

    code = "kernel-fault"

    def __init__(self, what: str, kernel: str, buffer: str, stack: tuple[Location, ...] = ()) -> None:
        self.kernel, self.buffer, self.stack = kernel, buffer, stack
        super().__init__(explained(self.code, what, CODES[self.code].remedy, stack))


class SpecializedDimension(DovetailError):
    """The code depends on the value of a size that the user marked dynamic."""

    code = "specialized-dimension"

    def __init__(self, name: str, value: int, where: str, line: str = "") -> None:
        self.where = where
        place = f" by {where}" + (f"\n    {line}" if line else "") if where else ""
        super().__init__(
            f"[{self.code}] {name} is marked dynamic, but was made the constant {value}{place}\n"
            f"  What to do: {CODES[self.code].remedy}\n  Explained by: {explained_by(self.code)}"
        )


class BackendError(DovetailError):
    """A backend given by the user raised; see `__cause__`."""

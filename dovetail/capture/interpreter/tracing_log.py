"""Shows each source line and each instruction that capture runs. Costs nothing where nobody watches.

    TRACE starts_line model.py:8 in f
            x = torch.sin(x)
    TRACE LOAD_GLOBAL torch []
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.capture.interpreter.comptime import shown
from dovetail.capture.values.base import NULL

if TYPE_CHECKING:
    from dovetail.capture.interpreter.frame import Frame

Emit = Callable[[str], None]


class Watch:
    """Where the texts go; None for a kind that nobody asked for."""

    def __init__(self, source: Emit | None, bytecode: Emit | None) -> None:
        self.source, self.bytecode = source, bytecode
        self.place: tuple[str, int, str] | None = None

    def instructions(self, frame: Frame) -> Sequence[Any]:
        """The frame's instructions, shown as they are fetched."""
        return _Shown(self, frame)

    def again(self, why: str) -> None:
        """Capture starts anew."""
        for emit in {self.source, self.bytecode} - {None}:
            emit(f"TRACE starts again: {why}")  # type: ignore[misc]

    def fetched(self, frame: Frame, instruction: Any) -> None:
        """Show the instruction, and the line that it begins."""
        place = frame.location()
        if self.source is not None and (place.filename, place.line, place.function) != self.place:
            self.place = (place.filename, place.line, place.function)
            depth = next((k for k, f in enumerate(frame.s.frames) if f is frame), 0)
            inlined = f" (inline depth: {depth})" if depth else ""
            head = f"TRACE starts_line {place.filename}:{place.line} in {place.function}{inlined}"
            self.source(f"{head}\n    {place.source()}")
        if self.bytecode is not None:
            operand = "None" if instruction.value is None and not instruction.arg else _operand(instruction)
            stack = ", ".join("NULL" if v is NULL else f"{type(v).__name__}({shown(v)})" for v in frame.stack_)
            self.bytecode(f"TRACE {instruction.name} {operand} [{stack}]")


def _operand(instruction: Any) -> str:
    if instruction.target >= 0:
        return f"to {instruction.target}"
    return str(instruction.arg if instruction.value is None else instruction.value)


class _Shown(Sequence[Any]):
    __slots__ = ("frame", "watch")

    def __init__(self, watch: Watch, frame: Frame) -> None:
        self.watch, self.frame = watch, frame

    def __len__(self) -> int:
        return len(self.frame.code.instructions)

    def __getitem__(self, index: Any) -> Any:
        instruction = self.frame.code.instructions[index]
        self.watch.fetched(self.frame, instruction)
        return instruction

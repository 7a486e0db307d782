"""What a function given to `dovetail.comptime` sees: the state of the capture that runs at that moment."""

from __future__ import annotations

import dis
import time
from typing import Any, TextIO

import torch.fx

from dovetail.capture.values.base import Const, NotNative, Session, Value
from dovetail.capture.values.callables import CellValue
from dovetail.capture.values.containers import SequenceValue
from dovetail.capture.values.objects import Lazy
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.graphtext import code_text, graph_text
from dovetail.ir.literals import in_words


def shown(value: Any) -> str:
    """A traced value in a few words."""
    if isinstance(value, CellValue):
        return f"cell of {shown(value.contents)}" if value.contents is not None else "cell"
    if isinstance(value, TensorValue):
        return f"Tensor(node={value.node.name}, dtype={value.fake.dtype}, size={tuple(value.fake.shape)})"
    if isinstance(value, Lazy):
        return f"{type(value.real).__name__} not looked at yet ({value.source.name()})"
    if isinstance(value, Const):
        return in_words(value.value, 200)
    if isinstance(value, SequenceValue):
        return f"{value.cls.__name__} of {len(value.items)}: [{', '.join(map(shown, value.items[:20]))}]"
    return value.describe() if isinstance(value, Value) else in_words(value)


class ComptimeVar:
    """What is known of a variable while capturing."""

    def __init__(self, s: Session, value: Any) -> None:
        self._s, self._value = s, value

    def as_proxy(self) -> Any:
        """The graph's node of a tensor."""
        return self._value.node

    def is_proxy(self) -> bool:
        return isinstance(self._value, TensorValue)

    def as_fake(self) -> Any:
        """A tensor without memory that has the variable's metadata."""
        return self._value.fake

    def size(self, dim: int | None = None) -> Any:
        return self.as_fake().size() if dim is None else self.as_fake().size(dim)

    def python_type(self) -> type:
        return self._value.cls

    def as_python_constant(self) -> Any:
        """The value itself, if it is known while capturing; raises TypeError otherwise."""
        try:
            return self._value.native()
        except NotNative:
            raise TypeError(f"{shown(self._value)} is not known while capturing") from None

    def is_python_constant(self) -> bool:
        try:
            self._value.native()
        except NotNative:
            return False
        return True

    def is_dynamic(self) -> bool:
        return not self.is_python_constant() and not self.is_proxy()

    def force_static(self) -> None:
        """Rely on the value: another one recompiles."""
        self.as_python_constant()

    def __repr__(self) -> str:
        return shown(self._value)


class ComptimeContext:
    """The running capture; frame 0 is the one that called comptime."""

    def __init__(self, s: Session, depth: int = 0) -> None:
        self._s, self._depth = s, depth

    def _frame(self, stacklevel: int = 0) -> Any:
        frames = self._s.user_frames()
        return frames[len(frames) - 1 - self._depth - stacklevel]

    def parent(self) -> ComptimeContext:
        return ComptimeContext(self._s, self._depth + 1)

    def get_local(self, name: str, *, stacklevel: int = 0) -> ComptimeVar:
        value = self._frame(stacklevel).locals[name]
        value = value.load(self._s) if isinstance(value, CellValue) else value
        return ComptimeVar(self._s, self._s.wrap(value.real, value.source) if type(value) is Lazy else value)

    def graph(self) -> torch.fx.Graph:
        """The graph so far."""
        return self._s.graph

    def graph_break(self, msg: str = "ComptimeContext.graph_break") -> None:
        self._s.unsupported("explicit-break", f"comptime ends the graph: {msg}")

    def assert_static(self, val: ComptimeVar) -> None:
        if val.is_dynamic():
            raise AssertionError("expected a value that is fixed while capturing, but it may change")

    def print(self, val: Any, *, file: TextIO | None = None) -> None:
        print(repr(val), file=file)

    def print_graph(self, *, verbose: bool = True, file: TextIO | None = None) -> None:
        print((graph_text if verbose else code_text)(self._s.graph), file=file)

    def disas(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """The bytecode of the running function, with a mark at the running instruction."""
        frame = self._frame(stacklevel)
        offset = frame.code.instructions[frame.at].offset
        print(dis.Bytecode(frame.code.code, current_offset=offset).dis(), file=file)

    print_disas = disas

    def print_value_stack(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        for value in self._frame(stacklevel).stack_:
            print(f"- {shown(value)}", file=file)

    def print_locals(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        for name, value in self._frame(stacklevel).locals.items():
            print(f"{name} = {shown(value)}", file=file)

    def print_bt(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """The user's calls from the compiled function to here."""
        print("\n".join(place.excerpt() for place in self._frame(stacklevel).stack()), file=file)

    def print_guards(self, *, file: TextIO | None = None) -> None:
        for guard in self._s.relied.guards:
            where = "process-wide state" if guard.source is None else guard.source.name()
            print(f"{guard.kind.name} {where}: {in_words(guard.payload, 200)}", file=file)

    def sleep(self, sec: float) -> None:
        time.sleep(sec)

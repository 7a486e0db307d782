"""`dovetail.comptime`: look at a compilation from inside the program that is compiled.

    comptime(lambda ctx: ctx.print_graph())     # at compile time; at run time it does nothing
    comptime.breakpoint()                       # a debugger with `ctx`, whenever this line is compiled
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from dovetail.ir import marks


class Comptime:
    """A call runs `fn(ctx)` each time the line is compiled; uncompiled code calls `fallback_fn()` instead."""

    def __call__(self, fn: Callable[[Any], Any], fallback_fn: Callable[[], Any] = lambda: None) -> None:
        fallback_fn()

    def graph_break(self) -> None:
        """End the graph here."""
        comptime(lambda ctx: ctx.graph_break())

    def print(self, e: Any) -> None:
        """Print what is known of a value; at run time, the value."""
        comptime(lambda ctx: ctx.print(ctx.get_local("e")), lambda: print(e))

    def print_graph(self) -> None:
        """Print the graph so far."""
        comptime(lambda ctx: ctx.print_graph())

    def disas(self, *, stacklevel: int = 0) -> None:
        """Print the bytecode of the running function."""
        comptime(lambda ctx: ctx.disas(stacklevel=ctx.get_local("stacklevel").as_python_constant() + 1))

    print_disas = disas

    def print_value_stack(self, *, stacklevel: int = 0) -> None:
        """Print the values that the running expression has on the interpreter's stack."""
        comptime(lambda ctx: ctx.print_value_stack(stacklevel=ctx.get_local("stacklevel").as_python_constant() + 1))

    def print_value_stack_and_return(self, e: Any, *, stacklevel: int = 0) -> Any:
        """The same inside of an expression: gives its argument."""
        comptime(lambda ctx: ctx.print_value_stack(stacklevel=ctx.get_local("stacklevel").as_python_constant() + 1))
        return e

    def print_locals(self, *, stacklevel: int = 0) -> None:
        """Print what is known of each local variable."""
        comptime(lambda ctx: ctx.print_locals(stacklevel=ctx.get_local("stacklevel").as_python_constant() + 1))

    def print_bt(self, *, stacklevel: int = 0) -> None:
        """Print the user's calls from the compiled function to here."""
        comptime(lambda ctx: ctx.print_bt(stacklevel=ctx.get_local("stacklevel").as_python_constant() + 1))

    def print_guards(self) -> None:
        """Print what the compilation relies on so far."""
        comptime(lambda ctx: ctx.print_guards())

    def assert_static(self, val: Any) -> None:
        """Fail to compile unless the value is fixed."""
        comptime(lambda ctx: ctx.assert_static(ctx.get_local("val")))

    def force_static(self, val: Any) -> None:
        """Rely on the value: another one recompiles."""
        comptime(lambda ctx: ctx.get_local("val").force_static())

    def sleep(self, sec: float) -> None:
        """Make compiling slower by so many seconds."""
        comptime(lambda ctx: ctx.sleep(ctx.get_local("sec").as_python_constant()))

    def breakpoint(self) -> None:
        """A debugger whenever this line is compiled; `ctx` there is the state of the compilation."""

        def inner(inner_ctx: Any) -> None:
            ctx = inner_ctx.parent()  # noqa: F841  for the user at the prompt
            builtins.breakpoint()

        comptime(inner)


comptime = Comptime()
marks.put(Comptime.__call__, marks.Mark.COMPTIME)

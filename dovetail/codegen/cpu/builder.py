"""Text of one LLVM function, built as nested scopes.

A loop is two scopes: the code before its first iteration, which runs only when there is one
(loop-invariant values go there), and its body. Values are placed in the outermost scope in which
their operands exist, so invariants are hoisted and common work is shared while emitting:

    guard -> preheader (scope d+1) -> body (scope d+2) -> latch -> body | exit
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

from dovetail.ir.records import dataclass


def hole(number: int) -> str:
    """What stands for an operand that is not known yet."""
    return chr(number + 1)


@dataclass(slots=True)
class Val:
    """An SSA value or constant: `depth` is the scope that defines it, `lanes` 1 when uniform."""

    text: str
    element: str  # scalar LLVM type
    lanes: int
    depth: int

    @property
    def type(self) -> str:
        return self.element if self.lanes == 1 else f"<{self.lanes} x {self.element}>"

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"


@dataclass(slots=True)
class Scope:
    """`guarded`: control may skip this scope although its parent runs."""

    block: str
    guarded: bool = False
    lines: list[str] = field(default_factory=list)
    memo: dict[Any, Any] = field(default_factory=dict)


Carried = tuple[str, str]  # type, initial value


class Builder:
    """One function's instructions. `declares` collects the declarations that it needs."""

    def __init__(self, declares: dict[str, str]) -> None:
        self.declares = declares
        self.scopes = [Scope("entry")]
        self.count = 0

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    def fresh(self, hint: str = "v") -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def find(self, key: Any) -> Any:
        """A value memoised in any live scope."""
        for scope in reversed(self.scopes):
            found = scope.memo.get(key)
            if found is not None:
                return found
        return None

    def op(self, text: str, element: str, lanes: int, depth: int | None = None) -> Val:
        """One instruction, placed in scope `depth` (the innermost by default)."""
        depth = self.depth if depth is None else depth
        name = f"%{self.fresh()}"
        self.scopes[depth].lines.append(f"  {name} = {text}")
        return Val(name, element, lanes, depth)

    def shared(self, text: str, element: str, lanes: int, operands: Iterable[Val]) -> Val:
        """A pure instruction, placed where its operands exist and emitted once there."""
        depth = max((v.depth for v in operands), default=0)
        memo = self.scopes[depth].memo
        found = memo.get(text)
        if found is None:
            found = memo[text] = self.op(text, element, lanes, depth)
        return found

    def pasted(self, text: str, result: str, element: str, operands: Sequence[Val]) -> Val:
        """Pure instructions that another builder made, with holes for operands, placed and shared like one."""
        depth = max(v.depth for v in operands)
        scope, key = self.scopes[depth], (text, *(v.text for v in operands))
        found = scope.memo.get(key)
        if found is None:
            own = f"%{self.fresh('p')}.v"
            text, result = text.replace("%v", own), result.replace("%v", own)
            for k, operand in enumerate(operands):
                text = text.replace(hole(k), operand.text)
            scope.lines.append(text)
            found = scope.memo[key] = Val(result, element, operands[0].lanes, depth)
        return found

    def line(self, text: str) -> None:
        self.scope.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Start a new block inside the innermost scope."""
        self.scope.lines.append(f"{name}:")
        self.scope.block = name

    def call(self, name: str, result: str, arguments: list[Val], lanes: int) -> Val:
        """A pure call, shared like any other value."""
        self.declare(name, vector_text(result, lanes), [a.type for a in arguments])
        inside = ", ".join(a.typed for a in arguments)
        return self.shared(f"call {vector_text(result, lanes)} @{name}({inside})", result, lanes, arguments)

    def declare(self, name: str, result: str, arguments: list[str]) -> None:
        self.declares.setdefault(name, f"declare {result} @{name}({', '.join(arguments)})")

    def loop(
        self,
        start: Val,
        end: Val,
        step: str,
        carried: list[Carried],
        body: Callable[[Val, list[str]], list[str]],
        guarded: bool = True,
    ) -> list[str]:
        """`for (i = start; i < end; i += step)`; returns the carried values after the last one.

        `body(i, values)` emits one iteration and gives the next values. With `guarded` false
        the caller promises start < end.
        """
        tag = self.fresh("l")
        before, parent = self.scope.block, self.scope
        self.scopes.append(Scope(f"{tag}.pre", guarded))
        self.scopes.append(Scope(f"{tag}.body"))
        index = Val(f"%{tag}.i", "i64", 1, self.depth)
        names = [f"%{tag}.c{k}" for k in range(len(carried))]
        nexts = body(index, names)
        inner, pre = self.scopes.pop(), self.scopes.pop()
        if guarded:
            parent.lines += [
                f"  %{tag}.g = icmp slt i64 {start.text}, {end.text}",
                f"  br i1 %{tag}.g, label %{tag}.pre, label %{tag}.exit",
            ]
        else:
            parent.lines.append(f"  br label %{tag}.pre")
        parent.lines += [f"{tag}.pre:", *pre.lines, f"  br label %{tag}.body", f"{tag}.body:"]
        first, last = f"%{tag}.pre", f"%{inner.block}"
        parent.lines.append(f"  {index.text} = phi i64 [ {start.text}, {first} ], [ %{tag}.n, {last} ]")
        for name, (kind, initial), following in zip(names, carried, nexts, strict=True):
            parent.lines.append(f"  {name} = phi {kind} [ {initial}, {first} ], [ {following}, {last} ]")
        parent.lines += inner.lines
        parent.lines += [
            f"  %{tag}.n = add nsw i64 {index.text}, {step}",
            f"  %{tag}.t = icmp slt i64 %{tag}.n, {end.text}",
            f"  br i1 %{tag}.t, label %{tag}.body, label %{tag}.exit",
            f"{tag}.exit:",
        ]
        parent.block = f"{tag}.exit"
        return self.merged(tag, carried, nexts, before, last) if guarded else nexts

    def merged(self, tag: str, carried: list[Carried], nexts: list[str], before: str, last: str) -> list[str]:
        """The carried values after a loop that may not have run at all."""
        results = [f"%{tag}.r{k}" for k in range(len(carried))]
        for name, (kind, initial), following in zip(results, carried, nexts, strict=True):
            self.scope.lines.append(f"  {name} = phi {kind} [ {initial}, %{before} ], [ {following}, {last} ]")
        return results

    def once(
        self, start: Val, end: Val, carried: list[Carried], body: Callable[[Val, list[str]], list[str]]
    ) -> list[str]:
        """`if (start < end) body(start)`; returns the carried values after it."""
        tag = self.fresh("o")
        before, parent = self.scope.block, self.scope
        self.scopes.append(Scope(f"{tag}.body", guarded=True))
        nexts = body(Val(start.text, "i64", 1, self.depth), [initial for _, initial in carried])
        inner = self.scopes.pop()
        parent.lines += [
            f"  %{tag}.g = icmp slt i64 {start.text}, {end.text}",
            f"  br i1 %{tag}.g, label %{tag}.body, label %{tag}.exit",
            f"{tag}.body:", *inner.lines, f"  br label %{tag}.exit", f"{tag}.exit:",
        ]  # fmt: skip
        parent.block = f"{tag}.exit"
        results = []
        for k, ((kind, initial), following) in enumerate(zip(carried, nexts, strict=True)):
            results.append(f"%{tag}.r{k}")
            parent.lines.append(
                f"  %{tag}.r{k} = phi {kind} [ {initial}, %{before} ], [ {following}, %{inner.block} ]"
            )
        return results

    def text(self) -> list[str]:
        assert len(self.scopes) == 1
        return self.scopes[0].lines


def vector_text(element: str, lanes: int) -> str:
    return element if lanes == 1 or element == "void" else f"<{lanes} x {element}>"

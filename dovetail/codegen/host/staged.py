"""The parts of a graph one after the other, as plain Python.

    def run(x):
        gt, = part0(x)
        nonzero = nonzero_(gt)
        u0 = nonzero.size(0)
        if not (u0 >= 1): raise OtherSizes('u0 >= 1')
        index, = part1(x, nonzero, u0)
        return (index, )
"""

from __future__ import annotations

import re
from typing import Any

import torch

from dovetail.codegen.host.library_calls import callee
from dovetail.ir import dims
from dovetail.ir.kernel import HostProgram
from dovetail.ir.staged import LayoutCheck, Learn, Part, Ref, SizeCheck, Staged, StagedCall


def generate(staged: Staged, consumes: bool = False) -> HostProgram:
    """Parts are globals `part0`, `part1`... `consumes`: the inputs come as a list, which is emptied."""
    return _Text(staged).build(consumes)


class _Text:
    def __init__(self, staged: Staged) -> None:
        self.staged = staged
        self.names: dict[str, Any] = {"torch": torch}
        self.parts = 0
        self.writing: list[str] = []  # calls of parts that write to inputs

    def build(self, consumes: bool) -> HostProgram:
        staged = self.staged
        body = [line for step in staged.steps for line in _EMIT[type(step)](self, step)]
        end = [f"{old}.copy_({new})" for old, new in staged.written]
        end.append(f"return ({''.join(f'{self.argument(o)}, ' for o in staged.outputs)})")
        body += end
        head = f"{''.join(f'{name}, ' for name in staged.inputs)}= box; box.clear()" if staged.inputs else "box.clear()"
        lines = [f"def run({'box' if consumes else ', '.join(staged.inputs)}):"]
        lines += [f"    {head}"] if consumes else []
        if staged.draws:
            self.names["state_of_generator"] = torch.default_generator.get_state
            lines.append("    generator = state_of_generator()")
        lines += [f"    {line}" for line in (*self.sizes(body), *self.dropping(body))]
        self.names |= staged.constants
        lasting = [lines.index(f"    {end[0]}") + 1, *(lines.index(f"    {text}") + 2 for text in self.writing)]
        return HostProgram("\n".join(lines) + "\n", (), self.names, lasting={"run": min(lasting)})

    def sizes(self, body: list[str]) -> list[str]:
        """Symbols that the inputs tell, as far as they are mentioned."""
        text, found = "\n".join(body), []
        for symbol, source in reversed([*self.staged.known.items()]):
            if re.search(rf"\b{symbol.name}\b", text):
                found.append(f"{symbol.name} = {source}")
                text += source
        return found[::-1]

    def dropping(self, body: list[str]) -> list[str]:
        """The lines, with values let go after their last use."""
        made = {name for step in self.staged.steps for name in _made(step)}
        last: dict[str, int] = {}
        for k, line in enumerate(body):
            last |= dict.fromkeys(made.intersection(re.findall(r"\w+", line)), k)
        lines = []
        for k, line in enumerate(body):
            lines.append(line)
            dead = sorted(name for name, place in last.items() if place == k)
            if dead and k < len(body) - 1:
                lines.append(f"{' = '.join(dead)} = None")
        return lines

    # ------------------------------------------------------------ steps

    def part(self, step: Part) -> list[str]:
        name, self.parts = f"part{self.parts}", self.parts + 1
        results = "".join(f"{r}, " for r in step.results)
        call = f"{name}({', '.join(map(self.argument, step.given))})"
        line = f"{results}= {call}" if results else call
        self.writing += [line] if step.graph.mutated else []
        return [line]

    def call(self, step: StagedCall) -> list[str]:
        function = f"call_{step.name}"
        self.names[function] = callee(step.operator)
        given = [*map(self.argument, step.args), *(f"{k}={self.argument(v)}" for k, v in step.kwargs.items())]
        return [f"{step.name} = {function}({', '.join(given)})"]

    def layout(self, step: LayoutCheck) -> list[str]:
        sizes, strides = self.argument(step.sizes), self.argument(step.strides)
        shown = f"{step.name} = expect_layout({step.name}, {sizes}, {strides}, {step.operator!r})"
        return [f"if {step.name}.shape != {sizes} or {step.name}.stride() != {strides}: {shown}"]

    def learn(self, step: Learn) -> list[str]:
        return [f"{step.symbol.name} = {step.text}"]

    def check(self, step: SizeCheck) -> list[str]:
        return [f"if not ({step.text}): raise OtherSizes({step.text!r})"]

    def argument(self, value: Any) -> str:
        if isinstance(value, Ref):
            return value.name
        if isinstance(value, dims.Poly):
            return str(value)
        if isinstance(value, (tuple, list)):
            inside = "".join(f"{self.argument(v)}, " for v in value)
            return f"[{inside}]" if isinstance(value, list) else f"({inside})"
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        name = f"constant{len(self.names)}"
        self.names[name] = value
        return name


def _made(step: Any) -> tuple[str, ...]:
    return step.results if isinstance(step, Part) else (step.name,) if isinstance(step, StagedCall) else ()


_EMIT: dict[type, Any] = {
    Part: _Text.part, StagedCall: _Text.call, LayoutCheck: _Text.layout, Learn: _Text.learn, SizeCheck: _Text.check,
}  # fmt: skip

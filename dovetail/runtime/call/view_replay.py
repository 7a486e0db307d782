"""A graph's outputs, made of its results and inputs: straight-line code that PyTorch's view operators are replayed by.

    def outputs(inputs, results):
        grad = get_grad()
        try:
            o0 = results[0]
            set_grad(False)
            o1 = view_0(results[1], [8])
        finally:
            set_grad(grad)
        return (o0, o1, )

A view is made in the grad mode that the program made it in; modes are entered where they change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from dovetail.ir.aten import Returned, ViewStep
from dovetail.runtime.call.sizes import at_call

aten = torch.ops.aten
_SET = torch._C._autograd._unsafe_set_version_counter
#: Functions of the C extension that do what a view operator does with cheaper argument parsing.
_DIRECT = {aten.t.default: torch.t, aten.view.default: torch.Tensor.view, aten.detach.default: torch.detach}


def compile_output_builder(returned: Sequence[Returned], fakes: Sequence[Any], like: Sequence[Any]) -> Any:
    """A function of the inputs, which look like `fakes`, and the results, which look like `like`."""
    names: dict[str, Any] = {}
    builder = OutputBuilder(fakes, like, torch.is_grad_enabled(), names)
    lines = builder.made(returned)
    text = "\n    ".join(["def outputs(inputs, results):", *lines, f"return {builder.given}"])
    exec(compile(text, "<dovetail outputs>", "exec"), names)
    return names.pop("outputs")


class OutputBuilder:
    """Prints the lines that make outputs, and `given`, the tuple of them. `mode`: is grad mode on in a call?"""

    def __init__(self, fakes: Sequence[Any], like: Sequence[Any], mode: bool, names: dict[str, Any]) -> None:
        self.fakes, self.like, self.mode, self.names = fakes, like, mode, names
        names |= {
            "get_grad": torch.is_grad_enabled, "set_grad": torch._C._set_grad_enabled, "set_version": _SET,
            "older": _older, "renew": _renew,
        }  # fmt: skip
        self.known: dict[int, str] = {}
        self.lines: list[str] = []
        self.switched = False
        self.given = ""

    def made(self, returned: Sequence[Returned]) -> list[str]:
        for k in _order(returned):
            self.output(k, returned[k])
        outputs = "".join(f"o{k}, " for k in range(sum(each.given for each in returned)))
        self.given = f"({outputs})"
        if not self.switched:
            return self.lines
        return ["grad = get_grad()", "try:", *(f"    {line}" for line in self.lines), "finally:", "    set_grad(grad)"]

    def output(self, k: int, each: Returned) -> None:
        self.lines.append(f"o{k} = {self.origin(each)}")
        if each.late and each.steps:
            older = f"set_version((o{k}, ), (older(v{k}, {each.late}), ))"
            before, self.lines = [*self.lines, f"r{k}, v{k} = o{k}, o{k}._version", older], []
            self.steps(k, each.steps)
            inside = [f"    {line}" for line in self.lines]
            self.lines = [*before, "try:", *inside, "finally:", f"    set_version((r{k}, ), (v{k}, ))", f"renew(o{k})"]
        else:
            self.steps(k, each.steps)
        if each.version is not None:
            self.lines.append(f"set_version((o{k}, ), ({each.version}, ))")

    def origin(self, each: Returned) -> str:
        if each.origin == "output":
            return f"o{each.value}"
        if each.origin != "object":
            return f"{each.origin}s[{each.value}]"
        now = at_call(each.value, self.fakes, self.like)
        return self.name(each.value) if now is None else f"{self.name(now)}(inputs, results)"

    def steps(self, k: int, steps: Sequence[ViewStep]) -> None:
        """The view operators, one after the other."""
        now = at_call([(step.args, dict(step.kwargs)) for step in steps], self.fakes, self.like)
        if now is not None:
            self.lines.append(f"n{k} = {self.name(now)}(inputs, results)")
        for number, step in enumerate(steps):
            self.enter(step.grad)
            called = _DIRECT.get(step.operator) or getattr(step.operator, "_op", step.operator)
            function = self.name(called, getattr(step.operator, "__name__", "c").partition(".")[0])
            if now is not None:
                arguments = f"*n{k}[{number}][0], **n{k}[{number}][1]"
            else:
                named = (f"{name}={self.text(value)}" for name, value in step.kwargs.items())
                arguments = ", ".join([*map(self.text, step.args), *named])
            index = "" if step.index is None else f"[{step.index}]"
            self.lines.append(f"o{k} = {function}(o{k}, {arguments}){index}")

    def enter(self, mode: bool) -> None:
        if mode != self.mode:
            self.mode, self.switched = mode, True
            self.lines.append(f"set_grad({mode})")

    def text(self, value: Any) -> str:
        if type(value) in (int, bool, type(None)):
            return repr(value)
        if type(value) is list and all(type(n) is int for n in value):
            return repr(value)  # made anew for each call
        return self.name(value)

    def name(self, value: Any, hint: str = "c") -> str:
        found = self.known.get(id(value))
        if found is None:
            found = self.known[id(value)] = f"{hint}_{len(self.known)}"
            self.names[found] = value
        return found


def _older(version: int, late: int) -> int:
    """What a tensor's counter said so many writes ago: PyTorch gives a view another history when it is older."""
    return max(version - late, 0)


def _renew(view: torch.Tensor) -> None:
    """Has PyTorch give a view that is out of date its history now: `register_hook` crashes on one."""
    with contextlib.suppress(RuntimeError):  # reading it raises for the user too
        _ = view.grad_fn


def _order(returned: Sequence[Returned]) -> list[int]:
    """Positions of outputs, each after the one that it is made of, and older ones first: a view that was read when its
    counter said more gets another history again where it says less."""
    order: dict[int, None] = {}

    def place(k: int) -> None:
        if k not in order:
            if returned[k].origin == "output":
                place(returned[k].value)
            order[k] = None

    for k in sorted(range(len(returned)), key=lambda k: -returned[k].late):
        place(k)
    return list(order)

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
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.ir.aten import Returned, ViewStep
from dovetail.ir.devices import HOST
from dovetail.ops.fake.symbolic.symbols_in_graph import sizes_in, told_by
from dovetail.ops.fake.symbolic.symint import dim_of, is_size

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


# ---------------------------------------------------------------- values that contain symbolic sizes


def at_call(
    value: Any, fakes: Sequence[Any], results: Sequence[Any] = ()
) -> Callable[[Sequence[Any], Sequence[Any]], Any] | None:
    """What gives `value` for the inputs and results of a call, which look like these; None where it is always the same.

        (permute, [s0, 4*s1])    ->    def now(inputs, results): s0 = inputs[0].size(0); ...; return (c0, [s0, 4*s1, ])
    """
    if next(sizes_in(value), None) is None:
        return None
    names: dict[str, Any] = {}
    given = [(f"inputs[{k}]", f) for k, f in enumerate(fakes)] + [(f"results[{k}]", r) for k, r in enumerate(results)]
    body = [f"    {s.name} = {text}" for s, text in told_by(given).items()]
    source = "\n".join(["def now(inputs, results):", *body, f"    return {_text(value, names)}"])
    exec(compile(source, "<sizes>", "exec"), names)
    return names["now"]


def _text(value: Any, names: dict[str, Any]) -> str:
    """`value` as Python; `names` gets what has no text."""
    if is_size(value):
        return f"({dim_of(value)})"
    if isinstance(value, (tuple, list)):
        inside = "".join(f"{_text(v, names)}, " for v in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(v, names)}" for key, v in value.items()) + "}"
    name = f"c{len(names)}"
    names[name] = value
    return name


# ---------------------------------------------------------------- version counters, set to what eager's would say

advance_all = torch._C._increment_version


def at_version(tensor: torch.Tensor, version: int) -> torch.Tensor:
    """The tensor, its counter set. A view is made again: when the counter comes to where it was, it misses a write."""
    before = tensor._version
    _SET((tensor,), (version,))
    return torch.ops.aten.alias.default(tensor) if before > version and tensor._is_view() else tensor


def advance(tensor: torch.Tensor, extra: int) -> None:
    _SET((tensor,), (tensor._version + extra,))


def recounting(call: Callable[[list], Any], places: Sequence[tuple[int, int]]) -> Callable[[list], Any]:
    """`call`, which takes a list that it empties, and has what it writes to of that count further than by one write."""

    def recounted(box: list) -> Any:
        given = [(box[k], box[k]._version, extra) for k, extra in places]
        results = call(box)
        for tensor, before, extra in given:
            if tensor._version != before:
                advance(tensor, extra)
        return results

    return recounted if places else call


# ---------------------------------------------------------------- results of a program that ran its own backward pass


class _FreedHistory(torch.autograd.Function):
    """A tensor whose history has been freed: it requires gradients, and there are none to be had again."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
            "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if "
            "you need to access saved tensors after calling backward."
        )


def anchor() -> torch.Tensor:
    """What gives such results a history."""
    return torch.empty(0, requires_grad=True, device=HOST)


def mark_freed(anchor: torch.Tensor, outputs: Sequence[Any], places: Sequence[int]) -> Sequence[Any]:
    """The outputs, those at `places` as such."""
    marked = list(outputs)
    with torch.enable_grad():
        for place in places:
            marked[place] = _FreedHistory.apply(anchor, marked[place])
    return tuple(marked)

"""What a call needs around the program that was compiled for it, and the Python text that does it.

    CallPlan(written=(1,), no_autocast=True, rewritten=((1, 0),), returned=...)    ->

    def call(*inputs):
        if overlapping(inputs):
            return uncompiled(*inputs)
        with no_autocast():
            results = run(*inputs)
        inputs[1].copy_(results[0])
        o0 = results[1]
        o1 = results[1]
        o1 = view0(o1, [8])
        return (o0, o1, )

`Printer.text` is the order. A plan is data, kept with a compilation; a call that needs nothing is the program itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from dovetail.ir.aten import Returned
from dovetail.ir.checks import CheckFailed, OtherSizes
from dovetail.ir.joint import Passed
from dovetail.ir.settings import SETTERS, SETTINGS
from dovetail.runtime.call.autograd import minds
from dovetail.runtime.call.freed_history import anchor, mark_freed
from dovetail.runtime.call.hook_watch import watcher
from dovetail.runtime.call.overlap import NOW, Overlap, unmoved
from dovetail.runtime.call.program import execute
from dovetail.runtime.call.version_counters import advance, advance_all, at_version
from dovetail.runtime.call.view_replay import OutputBuilder
from dovetail.runtime.dispatch.restore_modes import mode_state, restore

Call = Callable[..., Any]
_numbers = count()


@dataclass(frozen=True)
class CallPlan:
    """In the order of the call. Numbers are positions of the graph's inputs, of results and of outputs.

    Around all of it, whatever runs the graph:
    `restores`: functions by which the graph enters modes or changes settings, to be undone where it raises;
    `no_torch_function`: what `__torch_function__` of tensor classes adds is in the graph already.

    The captured graph runs instead of the program
    `written`: where these inputs share memory with others;
    `hooked`, `becoming`: where these have what a backward pass from some results must not run, or keep their gradient;
    `checks`: where a check of the program fails, so that PyTorch raises its own error;
    `elsewhere`: not at all, but the program's own code, since the graph may find out too late about sizes.

    The program runs
    `recorded`: knowing that inputs lie where they did in the last call;
    `detached`: with these inputs without their history, as they get no gradient;
    `no_grad`, `no_autocast`: in no such mode, since history is another's business and casts are in the graph.

    Then
    `counted`, `recounted`: version counters become eager's (see AtenGraph);
    `rewritten`: inputs get their new value by `copy_`, with a history;
    `returned`: outputs are made of `results` results, in a call under grad mode `grad`;
    `freed`: outputs whose history has been used up refuse a backward pass;
    `passed`, `watched`: the backward pass is told which tensors results pass by; that result's node is told.
    """

    restores: tuple[Any, ...] = ()
    no_torch_function: bool = False
    written: tuple[int, ...] = ()
    hooked: tuple[int, ...] = ()
    becoming: tuple[int, ...] = ()
    checks: bool = False
    elsewhere: bool = False
    recorded: bool = False
    detached: tuple[int, ...] = ()
    no_grad: bool = False
    no_autocast: bool = False
    counted: tuple[tuple[int, int], ...] = ()
    recounted: tuple[tuple[int, int], ...] = ()
    rewritten: tuple[tuple[int, int], ...] = ()
    returned: tuple[Returned, ...] | None = None
    results: int = 0
    grad: bool = True
    freed: tuple[int, ...] = ()
    passed: tuple[Passed, ...] = ()
    watched: int = 0




def load(
    plan: CallPlan, run: Call, graph: Call, fakes: Sequence[Any] = (), like: Sequence[Any] = (),
    constants: Sequence[Any] = (),
) -> tuple[Call, str]:  # fmt: skip
    """A callable of the graph's inputs, which look like `fakes`, and its text; empty where that is `run` itself.

    `run` gives results, which look like `like`; `graph` gives outputs. `constants` are tensors that `run` has of its
    own; they count after the inputs.
    """
    printer = Printer(plan, fakes, like, constants)
    text = printer.text()
    if printer.lines == _PLAIN:
        return run, ""
    uncompiled = _elsewhere if plan.elsewhere else graph
    names = {**printer.names, "run": run, "graph": graph, "uncompiled": uncompiled}
    execute(text, f"<dovetail call {next(_numbers)}>", names, name="call")
    return names.pop("call"), text  # whose globals refer to the caller's tensors, and must not wait for the collector


def _elsewhere(*inputs: Any) -> Any:
    raise OtherSizes("tensors that do not overlap, without hooks", undone=True)


_PLAIN = ["    results = run(*inputs)", "    return results"]
_NAMES = {
    "mode_state": mode_state, "restore": restore, "no_torch_function": torch._C.DisableTorchFunctionSubclass,
    "NOW": NOW, "unmoved": unmoved, "minds": minds, "CheckFailed": CheckFailed, "get_grad": torch.is_grad_enabled,
    "set_grad": torch._C._set_grad_enabled, "no_autocast": torch._C._DisableAutocast, "advance_all": advance_all,
    "advance": advance, "at_version": at_version, "mark_freed": mark_freed,
}  # fmt: skip


class Printer:
    """Prints one plan. `names`: what the text's names stand for, beside `run`, `graph` and `uncompiled`."""

    def __init__(self, plan: CallPlan, fakes: Sequence[Any], like: Sequence[Any], constants: Sequence[Any]) -> None:
        self.plan, self.fakes, self.like, self.constants = plan, fakes, like, constants
        self.overlap = Overlap.of(plan.written, fakes, constants)
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = dict(_NAMES)

    def text(self) -> str:
        """All of it, in order."""
        with self.modes_restored(), self.no_torch_function(), self.no_overlap():
            self.no_hooks()
            given = self.detached_inputs()
            with self.checked(), self.no_grad(), self.block("with no_autocast():", self.plan.no_autocast):
                self.line(f"results = run(*{given})")
            self.graph_where_a_check_failed()
            self.version_counters()
            self.rewritten_inputs()
            self.outputs()
        return "\n".join(["def call(*inputs):", *self.lines, ""])

    # ------------------------------------------------------------ lines

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextlib.contextmanager
    def block(self, head: str, wanted: bool = True) -> Iterator[None]:
        """What is printed meanwhile stands in a block with this head, if it is wanted."""
        if wanted:
            self.line(head)
        self.depth += wanted
        yield
        self.depth -= wanted

    # ------------------------------------------------------------ steps

    @contextlib.contextmanager
    def modes_restored(self) -> Iterator[None]:
        plan = self.plan
        runs_graph = plan.returned is None or self.overlap or plan.hooked or plan.becoming or plan.checks
        if not plan.restores or not runs_graph:
            yield
            return
        setters = [write for write in plan.restores if write in SETTERS]
        for k, write in enumerate(setters):
            self.names |= {f"get{k}": SETTINGS[SETTERS[write]], f"set{k}": write}
        self.line("modes = mode_state()")
        for k in range(len(setters)):
            self.line(f"setting{k} = get{k}()")
        with self.block("try:"):
            yield
        with self.block("except BaseException:"):
            self.line("restore(modes)")
            for k in range(len(setters)):
                self.line(f"set{k}(setting{k})")
            self.line("raise")

    def no_torch_function(self) -> contextlib.AbstractContextManager[None]:
        return self.block("with no_torch_function():", self.plan.no_torch_function)

    @contextlib.contextmanager
    def no_overlap(self) -> Iterator[None]:
        if self.overlap is None:
            yield
            return
        self.names |= {"overlap": self.overlap, "overlapping": self.overlap.found}
        with self.block("if overlapping(inputs):"):
            self.line("return uncompiled(*inputs)")
        if self.plan.recorded:
            self.line("before, NOW.good = unmoved(), overlap.last")
        with self.block("try:", self.plan.recorded):
            yield
        if self.plan.recorded:
            with self.block("finally:"):
                self.line("NOW.good = before")

    def no_hooks(self) -> None:
        hooked, becoming = map(_inputs, (self.plan.hooked, self.plan.becoming))
        if self.plan.hooked or self.plan.becoming:
            with self.block(f"if minds(({hooked}), ({becoming})):"):
                self.line("return uncompiled(*inputs)")

    def detached_inputs(self) -> str:
        """What the program takes: the engine must not go on to where an input without a gradient came from."""
        if not self.plan.detached:
            return "inputs"
        self.line("given = [*inputs]")
        for k in self.plan.detached:
            self.line(f"given[{k}] = given[{k}].detach()")
        return "given"

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        with self.block("try:", self.plan.checks):
            yield
        if self.plan.checks:
            with self.block("except CheckFailed:"):
                self.line("results = None")

    def graph_where_a_check_failed(self) -> None:
        """Outside of the handler: what PyTorch raises has no other error as its context."""
        if self.plan.checks:
            with self.block("if results is None:"):
                self.line("return graph(*inputs)")

    @contextlib.contextmanager
    def no_grad(self) -> Iterator[None]:
        if self.plan.no_grad:
            self.line("grad = get_grad()")
        with self.block("try:", self.plan.no_grad):
            if self.plan.no_grad:
                self.line("set_grad(False)")
            yield
        if self.plan.no_grad:
            with self.block("finally:"):
                self.line("set_grad(grad)")

    def version_counters(self) -> None:
        most = max((extra for _, extra in self.plan.recounted), default=0)
        for n in range(most):
            self.line(f"advance_all([{', '.join(self.given(k) for k, extra in self.plan.recounted if extra > n)}])")
        for k, extra in self.plan.recounted:
            if extra < 0:  # one by one: two inputs may share a counter
                self.line(f"advance({self.given(k)}, {extra})")
        if self.plan.counted:
            self.line("results = list(results)")
        for k, version in self.plan.counted:
            self.line(f"results[{k}] = at_version(results[{k}], {version})")

    def given(self, k: int) -> str:
        """An input, or a constant."""
        if k < len(self.fakes):
            return f"inputs[{k}]"
        name = f"constant{k - len(self.fakes)}"
        self.names[name] = self.constants[k - len(self.fakes)]
        return name

    def rewritten_inputs(self) -> None:
        for k, position in self.plan.rewritten:
            self.line(f"inputs[{k}].copy_(results[{position}])")

    def outputs(self) -> None:
        plan, outputs = self.plan, "results"
        if plan.returned is not None and not as_they_are(plan.returned):
            builder = OutputBuilder(self.fakes, self.like, plan.grad, self.names)
            for line in builder.made(plan.returned):
                self.line(line)
            outputs = builder.given
        elif plan.returned is not None and len(plan.returned) < plan.results:
            outputs = f"results[:{len(plan.returned)}]"
        elif plan.counted:
            outputs = "tuple(results)"
        if plan.freed or plan.passed:
            self.line(f"outputs = {outputs}")
            outputs = "outputs"
        if plan.freed:
            self.names["anchor"] = anchor()
            self.line(f"outputs = mark_freed(anchor, outputs, {plan.freed})")
        if plan.passed:
            self.names["watch"] = watcher(plan.passed, plan.watched)
            self.line("watch(inputs, results, outputs)")
        self.line(f"return {outputs}")


def _inputs(places: Sequence[int]) -> str:
    return "".join(f"inputs[{k}], " for k in places)


def as_they_are(returned: Sequence[Returned]) -> bool:
    """Are the outputs the first results?"""
    return all(r.origin == "result" and r.value == k and not r.steps for k, r in enumerate(returned))

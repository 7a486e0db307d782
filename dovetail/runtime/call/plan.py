"""What a call needs around the program that was compiled for it, and the Python text that does it.

    CallPlan(written=(1,), no_autocast=True, rewritten=((1, 0),), returned=...)    ->

    def call(*inputs):
        if overlapping(inputs):
            return uncompiled("it writes to ...", *inputs)
        with no_autocast():
            results = run(*inputs)
        inputs[1].copy_(results[0])
        o0 = results[1]
        o1 = results[1]
        o1 = view_0(o1, [8])
        return (o0, o1, )

`print_call` has the order. A plan is data, kept with a compilation; a call that needs nothing is the program itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch

from dovetail.ir.aten import Passed, Returned
from dovetail.ir.checks import CheckFailed, OtherSizes
from dovetail.ir.records import dataclass
from dovetail.ir.settings import SETTERS, SETTINGS
from dovetail.runtime.call.autograd import minds
from dovetail.runtime.call.hook_watch import watcher
from dovetail.runtime.call.overlap import NOW, OVERLAPS, Overlap, unmoved
from dovetail.runtime.call.program import execute
from dovetail.runtime.call.view_replay import OutputBuilder, advance, advance_all, anchor, at_version, mark_freed
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

    restores: tuple = ()
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
    constants: Sequence[Any] = (), left: Callable[[str, str], None] = lambda what, why: None,
) -> tuple[Call, str]:  # fmt: skip
    """A callable of the graph's inputs, which look like `fakes`, and its text; empty where that is `run` itself.

    `run` gives results, which look like `like`; `graph` gives outputs. `constants` are tensors that `run` has of its
    own; they count after the inputs. `left` is told of calls that `graph` does instead, and why.
    """

    def uncompiled(why: str, *inputs: Any) -> Any:
        if plan.elsewhere:
            raise OtherSizes("tensors that do not overlap, without hooks", undone=True)
        left("a call", why)
        return graph(*inputs)

    names: dict[str, Any] = {**_NAMES, "run": run, "graph": graph, "uncompiled": uncompiled}
    body = print_call(plan, fakes, like, constants, names)
    if body == ["results = run(*inputs)", "return results"]:
        return run, ""
    text = "\n".join([*_block("def call(*inputs):", body), ""])
    execute(text, f"<dovetail call {next(_numbers)}>", names, name="call")
    return names.pop("call"), text  # whose globals refer to the caller's tensors, and must not wait for the collector


HOOKED = "hooks before it are to see gradients that it does not have one by one"

_NAMES = {
    "mode_state": mode_state, "restore": restore, "no_torch_function": torch._C.DisableTorchFunctionSubclass,
    "NOW": NOW, "unmoved": unmoved, "minds": minds, "CheckFailed": CheckFailed, "get_grad": torch.is_grad_enabled,
    "set_grad": torch._C._set_grad_enabled, "no_autocast": torch._C._DisableAutocast, "advance_all": advance_all,
    "advance": advance, "at_version": at_version, "mark_freed": mark_freed,
}  # fmt: skip


def print_call(
    plan: CallPlan, fakes: Sequence[Any], like: Sequence[Any], constants: Sequence[Any], names: dict[str, Any]
) -> list[str]:
    """The lines of the call, from the program outwards and then on. `names` gets what they refer to."""
    body = _program(plan)
    if plan.recounted:
        names |= {f"constant{k}": tensor for k, tensor in enumerate(constants)}
    given = [f"inputs[{k}]" for k in range(len(fakes))] + [f"constant{k}" for k in range(len(constants))]
    body += _versions(plan, given)
    body += [f"inputs[{k}].copy_(results[{position}])" for k, position in plan.rewritten]
    body += _outputs(plan, fakes, like, names)

    if plan.hooked or plan.becoming:
        hooked, becoming = ("".join(f"inputs[{k}], " for k in places) for places in (plan.hooked, plan.becoming))
        body = [f"if minds(({hooked}), ({becoming})):", f"    return uncompiled({HOOKED!r}, *inputs)", *body]
    overlap = Overlap.of(plan.written, fakes, constants)
    if overlap is not None:
        names |= {"overlap": overlap, "overlapping": overlap.found}
        if plan.recorded:
            body = _block("try:", body, "finally:", "    NOW.good = before")
            body = ["before, NOW.good = unmoved(), overlap.last", *body]
        body = ["if overlapping(inputs):", f"    return uncompiled({OVERLAPS!r}, *inputs)", *body]
    if plan.no_torch_function:
        body = _block("with no_torch_function():", body)
    runs_graph = plan.returned is None or overlap is not None or plan.hooked or plan.becoming or plan.checks
    return _modes_restored(plan.restores, body, names) if plan.restores and runs_graph else body


def _block(head: str, body: Sequence[str], *after: str) -> list[str]:
    return [head, *(f"    {line}" for line in body), *after]


def _program(plan: CallPlan) -> list[str]:
    body = [f"results = run(*{'given' if plan.detached else 'inputs'})"]
    if plan.no_autocast:
        body = _block("with no_autocast():", body)
    if plan.no_grad:
        body = _block("try:", ["set_grad(False)", *body], "finally:", "    set_grad(grad)")
        body = ["grad = get_grad()", *body]
    if plan.checks:  # outside of the handler: what PyTorch raises has no other error as its context
        body = _block("try:", body, "except CheckFailed:", "    results = None")
        body += ["if results is None:", "    return graph(*inputs)"]
    if plan.detached:  # the engine must not go on to where an input without a gradient came from
        body = ["given = [*inputs]", *(f"given[{k}] = given[{k}].detach()" for k in plan.detached), *body]
    return body


def _versions(plan: CallPlan, given: Sequence[str]) -> list[str]:
    body = []
    for n in range(max((extra for _, extra in plan.recounted), default=0)):
        body.append(f"advance_all([{', '.join(given[k] for k, extra in plan.recounted if extra > n)}])")
    # One by one: two inputs may share a counter.
    body += [f"advance({given[k]}, {extra})" for k, extra in plan.recounted if extra < 0]
    if plan.counted:
        body.append("results = list(results)")
        body += [f"results[{k}] = at_version(results[{k}], {version})" for k, version in plan.counted]
        body.append("results = tuple(results)")
    return body


def _outputs(plan: CallPlan, fakes: Sequence[Any], like: Sequence[Any], names: dict[str, Any]) -> list[str]:
    body, outputs = [], "results"
    if plan.returned is not None and not as_they_are(plan.returned):
        builder = OutputBuilder(fakes, like, plan.grad, names)
        body, outputs = builder.made(plan.returned), builder.given
    elif plan.returned is not None and len(plan.returned) < plan.results:
        outputs = f"results[:{len(plan.returned)}]"
    if plan.freed:
        names["anchor"] = anchor()
        outputs = f"mark_freed(anchor, {outputs}, {plan.freed})"
    if plan.passed:
        names["watch"] = watcher(plan.passed, plan.watched)
        body, outputs = [*body, f"outputs = {outputs}", "watch(inputs, results, outputs)"], "outputs"
    return [*body, f"return {outputs}"]


def _modes_restored(restores: Sequence[Any], body: Sequence[str], names: dict[str, Any]) -> list[str]:
    setters = [write for write in restores if write in SETTERS]
    for k, write in enumerate(setters):
        names |= {f"get{k}": SETTINGS[SETTERS[write]], f"set{k}": write}
    before = ["modes = mode_state()", *(f"setting{k} = get{k}()" for k in range(len(setters)))]
    undo = ["restore(modes)", *(f"set{k}(setting{k})" for k in range(len(setters))), "raise"]
    return [*before, *_block("try:", body), *_block("except BaseException:", undo)]


def as_they_are(returned: Sequence[Returned]) -> bool:
    """Are the outputs the first results?"""
    return all(r.origin == "result" and r.value == k and not r.steps for k, r in enumerate(returned))

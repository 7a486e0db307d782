"""What a call needs around its program, as the text that does it."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import torch

from dovetail.ir.aten import Passed, Returned, ViewStep
from dovetail.ir.checks import CheckFailed, OtherSizes
from dovetail.runtime.call.plan import CallPlan
from dovetail.runtime.call.plan import load as load_call

aten = torch.ops.aten
SETTER = torch._C._set_float32_matmul_precision
VIEW = Returned("result", 0, (ViewStep(aten.view.default, ([4],), {}, None, True),))
WHOLE = Returned("result", 0)
X = [torch.zeros(2, 2), torch.zeros(2, 2)]

#: A plan, and the lines of its text.
TEXTS = {
    "nothing": (CallPlan(returned=(WHOLE,), results=1), ""),
    "an overlap": (CallPlan(written=(0,)), """
        if overlapping(inputs):
            return uncompiled('it writes to a tensor that shares memory with another one', *inputs)
        results = run(*inputs)
        return results
    """),
    "recordings": (CallPlan(written=(0,), recorded=True), """
        if overlapping(inputs):
            return uncompiled('it writes to a tensor that shares memory with another one', *inputs)
        before, NOW.good = unmoved(), overlap.last
        try:
            results = run(*inputs)
            return results
        finally:
            NOW.good = before
    """),
    "what a graph turns": (CallPlan(restores=(SETTER, torch._C._set_grad_enabled)), """
        modes = mode_state()
        setting0 = get0()
        try:
            results = run(*inputs)
            return results
        except BaseException:
            restore(modes)
            set0(setting0)
            raise
    """),
    "what a graph turns that cannot run": (CallPlan(restores=(SETTER,), returned=(WHOLE,), results=1), ""),
    "hooks": (CallPlan(hooked=(0,), becoming=(1,), detached=(1,)), """
        if minds((inputs[0], ), (inputs[1], )):
            return uncompiled('hooks before it are to see gradients that it does not have one by one', *inputs)
        given = [*inputs]
        given[1] = given[1].detach()
        results = run(*given)
        return results
    """),
    "modes and checks": (CallPlan(no_torch_function=True, checks=True, no_grad=True, no_autocast=True), """
        with no_torch_function():
            try:
                grad = get_grad()
                try:
                    set_grad(False)
                    with no_autocast():
                        results = run(*inputs)
                finally:
                    set_grad(grad)
            except CheckFailed:
                results = None
            if results is None:
                return graph(*inputs)
            return results
    """),
    "counters": (CallPlan(counted=((0, 2),), recounted=((0, 2), (1, 1), (2, -1))), """
        results = run(*inputs)
        advance_all([inputs[0], inputs[1]])
        advance_all([inputs[0]])
        advance(constant0, -1)
        results = list(results)
        results[0] = at_version(results[0], 2)
        results = tuple(results)
        return results
    """),
    "outputs": (
        CallPlan(rewritten=((1, 1),), returned=(WHOLE, VIEW), results=2, passed=(Passed("output", 0, (1,)),)), """
        results = run(*inputs)
        inputs[1].copy_(results[1])
        o0 = results[0]
        o1 = results[0]
        o1 = view_0(o1, [4])
        outputs = (o0, o1, )
        watch(inputs, results, outputs)
        return outputs
    """),
    "the first results, used up": (CallPlan(returned=(WHOLE,), results=2, freed=(0,)), """
        results = run(*inputs)
        return mark_freed(anchor, results[:1], (0,))
    """),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name):
    plan, expected = TEXTS[name]
    lines = [line[4:] for line in expected.splitlines()[1:-1]]
    text = load_call(plan, run, None, X, X, [torch.zeros(1)])[1]
    assert text.splitlines() == (["def call(*inputs):", *lines] if lines else [])


def run(x, y):
    return x + y, x - y


def test_a_call_that_needs_nothing_is_the_program():
    assert load_call(CallPlan(), run, None)[0] is run


def refusing(error):
    def raising(*inputs):
        raise error

    return raising


@pytest.mark.parametrize("plan, error", [
    (CallPlan(checks=True), CheckFailed("out of bounds")), (CallPlan(checks=True), OtherSizes("u0 >= 1")),
])  # fmt: skip
def test_a_check_that_fails_is_the_graphs_business(plan, error):
    call, _ = load_call(plan, refusing(error), lambda *inputs: "graph", X)
    assert call(*X) == "graph"
    with pytest.raises(ValueError) as raised:
        load_call(plan, refusing(error), refusing(ValueError("eager's")), X)[0](*X)
    assert raised.value.__context__ is None


def test_where_the_graph_may_find_out_too_late_it_does_not_run():
    call, _ = load_call(CallPlan(written=(0,), elsewhere=True), run, refusing(AssertionError()), X)
    with pytest.raises(OtherSizes) as raised:
        call(X[0], X[0])
    assert raised.value.undone


def test_modes_are_restored_where_the_graph_raises():
    def graph(*inputs):
        torch._C._set_grad_enabled(False)
        raise KeyError

    call, _ = load_call(CallPlan(restores=(torch._C._set_grad_enabled,)), graph, graph, X)
    with pytest.raises(KeyError):
        call(*X)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("grad", (True, False))
def test_the_program_runs_without_grad_mode_and_autocast(grad):
    seen = []

    def noting(*inputs):
        seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
        raise KeyError

    call, _ = load_call(CallPlan(no_grad=True, no_autocast=True), noting, None, X)
    with torch.set_grad_enabled(grad), torch.autocast("cpu"), contextlib.suppress(KeyError):
        try:
            call(*X)
        finally:
            assert torch.is_grad_enabled() is grad and torch.is_autocast_enabled("cpu")
    assert seen == [(False, False)]


class Graph:
    def __call__(self, *inputs):
        return inputs


def test_nothing_of_a_call_waits_for_the_collector():
    """What its text refers to goes with it."""
    graph = Graph()
    gone = weakref.ref(graph)
    gc.disable()
    try:
        call, _ = load_call(CallPlan(written=(0,)), run, graph, X)
        assert torch.equal(call(*X)[0], X[0])
        del call, graph
        assert gone() is None
    finally:
        gc.enable()

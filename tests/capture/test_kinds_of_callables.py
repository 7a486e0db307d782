"""Modules whose forward is decorated, static, scripted or traced; other callables; calls in `torch.device` blocks."""

from __future__ import annotations

import contextvars
import functools
import threading

import pytest
import torch
from torch import nn

import dovetail
from tests.capture.harness import compare


def wrapped(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs) + 1

    return inner


def through_self(function):
    def inner(self, *args):
        return function(self, *args) * 2

    return inner


DECORATORS = {
    "no_grad": torch.no_grad(), "enable_grad": torch.enable_grad(), "class": torch.no_grad, "wraps": wrapped,
    "set_grad_enabled": lambda function: torch.set_grad_enabled(False)(function),  # making it sets the mode at once
    "autocast": torch.autocast("cpu", dtype=torch.bfloat16),
    "both": lambda function: torch.no_grad()(wrapped(function)), "self": through_self,
    "custom_fwd": torch.amp.custom_fwd(device_type="cpu"), "inference_mode": torch.inference_mode(),
}  # fmt: skip


def decorated(name):
    class Decorated(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.arange(8.0).view(4, 2))

        @DECORATORS[name]
        def forward(self, x):
            return (x @ self.weight).sin()

    return Decorated()


class Static(nn.Module):
    @staticmethod
    def forward(x):
        return x.sin()


class OfClass(nn.Module):
    by = 3

    @classmethod
    def forward(cls, x):
        return x * cls.by


class Partial(nn.Module):
    def scaled(self, by, x):
        return x * by

    forward = functools.partialmethod(scaled, 3)


class Object:
    by = 3

    def gathered(*args):
        return args[1] * args[0].by

    def __call__(self, *args):
        return args[0] * self.by


def agree(function, whole=True):
    x = torch.arange(12.0).view(3, 4).requires_grad_()
    compiled = dovetail.compile(function, fullgraph=whole, backend="eager")
    for _ in range(2):
        ours, theirs = compiled(x), function(x)
        compare(ours, theirs)
        assert ours.requires_grad == theirs.requires_grad and ours.is_inference() == theirs.is_inference()
    return compiled


@pytest.mark.parametrize("name", DECORATORS)
def test_decorated_forward(name):
    module, whole = decorated(name), name != "inference_mode"
    agree(module, whole)
    agree(module.forward, whole)
    agree(nn.Sequential(module), whole)


@pytest.mark.parametrize("name", DECORATORS)
def test_decorated_function(name):
    agree(DECORATORS[name](lambda x: x.sin() @ x.t()), name != "inference_mode")


CALLABLES = (Static(), OfClass(), Partial(), Static().forward, Object(), Object().gathered,
             functools.partial(torch.add, alpha=2, other=1.5), functools.partial(decorated("wraps"), ))  # fmt: skip


@pytest.mark.parametrize("function", CALLABLES, ids=range(len(CALLABLES)))
def test_other_callables(function):
    agree(function)


def test_a_forward_of_the_instance():
    module = decorated("no_grad")
    module.forward = torch.no_grad()(module.forward)
    agree(module)
    module.forward = functools.partial(type(module).forward, module)
    agree(module)


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(3, 4))])
@pytest.mark.filterwarnings("ignore")
def test_scripted_modules_run_as_they_are(make):
    module = make(nn.Linear(4, 2))
    agree(module, whole=False)
    agree(lambda x: module(x) + 1, whole=False)


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("backend", ["dovetail", "eager"])
def test_calls_and_backward_passes_in_a_device_block(device, backend):
    module = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4))
    compiled, x = dovetail.compile(module, backend=backend, fullgraph=True), torch.randn(3, 4)
    for inside in (True, False, True):
        with torch.device(device if inside else "cpu"):
            ours, theirs = compiled(x).sum(), module(x).sum()
        torch.testing.assert_close(ours, theirs)
        with torch.device(device):
            grads = [torch.autograd.grad(v, list(module.parameters())) for v in (ours, theirs)]
        torch.testing.assert_close(*grads)


def test_new_tensors_are_where_the_block_says():
    compiled = dovetail.compile(lambda x: (x + 3, torch.ones(2) + 1), fullgraph=True)
    for device in ("meta", "cpu", "meta"):
        with torch.device(device):
            first, second = compiled(torch.ones(2, device="cpu"))
        assert (first.device.type, second.device.type) == ("cpu", device)


def test_each_thread_has_its_own_attributes():
    def function(x):
        return x * local.n + local.__dict__.get("b", 4) + ("c" in vars(local))

    def elsewhere():
        local.n, local.b = 5, 100
        agree(function)
        seen.append(compiled(torch.ones(2)))

    local, seen = threading.local(), []
    local.n = 1
    compiled = agree(function)
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    local.c = 1
    torch.testing.assert_close(seen, [torch.full((2,), 105.0)])
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 6.0))


def test_an_error_that_only_capture_meets_is_told():
    @dovetail.assume_constant_result
    def flaky():
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("once")
        return 2.0

    for whole, told in ((True, pytest.raises(dovetail.InternalError)), (False, pytest.warns(UserWarning))):
        calls = []
        with dovetail.config.patch(strict=False), told as found:
            dovetail.compile(lambda x: x + flaky(), fullgraph=whole, backend="eager")(torch.ones(2))
        assert "ValueError: once" in str(found.value if whole else found[0].message)


def test_builtins_hidden_by_a_new_global():
    space = {"torch": torch}
    function = eval("lambda x: x + len([1, 2])", space)
    compiled, x = dovetail.compile(function, fullgraph=True, backend="eager"), torch.ones(2)
    torch.testing.assert_close(compiled(x), x + 2)
    space["len"] = lambda values: 7
    torch.testing.assert_close(compiled(x), x + 7)
    del space["len"]
    torch.testing.assert_close(compiled(x), x + 2)


VARIABLE = contextvars.ContextVar("variable", default=1)


def scoped(x):
    token = VARIABLE.set(5)
    y = x + VARIABLE.get()
    VARIABLE.reset(token)
    return y * VARIABLE.get()


@pytest.mark.parametrize("function", [lambda x: x + VARIABLE.get(), lambda x: x + VARIABLE.get(4), scoped])
def test_defaults_of_context_variables(function):
    def calls(called):
        found = [called(torch.ones(2)), VARIABLE.get()]
        VARIABLE.set(3)
        return [*found, called(torch.ones(2)), VARIABLE.get()]

    compiled = dovetail.compile(function, fullgraph=True, backend="eager")
    ours, theirs = (contextvars.copy_context().run(calls, f) for f in (compiled, function))
    compare(ours, theirs)


def test_what_ends_the_graph_in_a_branch_of_cond_is_called_as_in_eager():
    def function(pred, pair):
        return torch.cond(pred, lambda p: p[0] + 1, lambda p: max(p[0], p[1]), [pair])

    compiled, pair = dovetail.compile(function, backend="eager"), (torch.tensor(1.0), torch.tensor(2.0))
    compare(compiled(torch.tensor(True), pair), function(torch.tensor(True), pair))

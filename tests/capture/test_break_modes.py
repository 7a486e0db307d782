"""Graph breaks while a mode is in force: it stays in force over the break, and is left as eager leaves it."""

from __future__ import annotations

import contextvars
import warnings

import pytest
import torch

import dovetail
from tests.capture.harness import compare

VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=0)


def product():
    return torch.ones(2, 2) @ torch.ones(2, 2)


def context_variable(x):
    token = VARIABLE.set(5)
    before, v, after = VARIABLE.get(), x.sum().item(), VARIABLE.get()
    VARIABLE.reset(token)
    return before, v, after, VARIABLE.get()


def context_variable_left_set(x):
    VARIABLE.set(7)
    return x.sum().item(), x + VARIABLE.get()


def inference(x):
    with torch.inference_mode():
        y = x + 1
        v = y.sum().item()
        z = y * 2
    return v, z, torch.is_inference_mode_enabled()


def inference_as_it_is(x):
    with torch.no_grad(), torch.inference_mode(torch.is_inference_mode_enabled()):
        y = x + 1
        inside = torch.is_grad_enabled()
        v = y.sum().item()
        z = y * 2
        torch.set_grad_enabled(False)
    return v, z, z.requires_grad, inside, torch.is_grad_enabled()


def inference_again(x):
    with torch.inference_mode():
        return inference_as_it_is(x)


def device(x):
    with torch.device("meta"):
        v = x.sum().item()
        z = torch.zeros(3)
    return v, z.device.type, torch.ones(1).device.type


def default_dtype(x):
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        v = x.sum().item()
        z = torch.zeros(3)
    finally:
        torch.set_default_dtype(old)
    return v, z, torch.ones(1)


def random_state(x):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        y = torch.rand(2)
    return y, x + 1


def autocast_twice(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            a, v, b = product(), x.sum().item(), product()
        c, w, d = product(), x.max().item(), product()
    return a, b, c, d, product(), v, w, torch.is_autocast_enabled("cpu")


def autocast_left_by_an_error(x):
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            raise ValueError(x.sum().item())
    except ValueError:
        return torch.is_autocast_enabled("cpu"), product()


def autocast_left_on(x):
    stack = [torch.autocast("cpu", dtype=torch.bfloat16)]
    stack[0].__enter__()
    a = product()
    v = x.sum().item()
    b = product()
    stack.pop().__exit__(None, None, None)
    return a, v, b, product()


@torch.no_grad()
def without_grad(x):
    return x.sum().item(), torch.is_grad_enabled(), x + 1


@torch.inference_mode()
def without_more(x):
    return x.sum().item(), x + 1


def decorated(x):
    return without_grad(x), without_more(x), torch.is_grad_enabled(), torch.is_inference_mode_enabled()


def recorded(x):
    with torch.profiler.record_function("name"):
        return x + x.sum().item()


PROGRAMS = [
    context_variable, context_variable_left_set, inference, inference_as_it_is, inference_again,
    device, default_dtype, random_state, autocast_twice,
    autocast_left_by_an_error, autocast_left_on, decorated, recorded,
]  # fmt: skip


def everything():
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), VARIABLE.get()


@pytest.mark.parametrize("program", PROGRAMS)
def test_mode(program):
    def watched(function, x):
        return function(x), everything()

    compiled = dovetail.compile(program, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scale in (1, 2, 3, 1, 2, 3, 1, 2, 3, 1):
            x = torch.ones(2) * scale
            expected = contextvars.copy_context().run(watched, program, x)
            compare(contextvars.copy_context().run(watched, compiled, x), expected)
    first = compiled._dovetail_dispatcher
    assert first.entries[0].captured.breaks
    assert not any(part.eager for part in (first, *first.compiler.rests.values()))


def inference_off_whole(x):
    with torch.no_grad():
        with torch.inference_mode(False):
            y = x * 2
            torch.set_grad_enabled(False)
        inside = torch.is_grad_enabled()
    return y, y.requires_grad, inside


@pytest.mark.parametrize("backend", ["dovetail", "aot_eager", "eager"])
def test_inference_mode_switched_off_where_it_is_off(backend):
    x = torch.randn(3, requires_grad=True)
    got = dovetail.compile(inference_off_whole, backend=backend, fullgraph=True)(x)
    assert got[1:] == inference_off_whole(x)[1:] == (True, False)
    assert got[0].requires_grad


def raises_without_grad(x):
    with torch.no_grad():
        x.requires_grad_(False)


def raises_under_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ x.t())[torch.tensor([7])]


@pytest.mark.parametrize("backend", ["dovetail", "aot_eager", "eager"])
@pytest.mark.parametrize("program", [raises_without_grad, raises_under_autocast])
def test_a_graph_that_raises_leaves_modes(program, backend):
    x = torch.randn(3, 4, requires_grad=True).view(-1, 2)
    with pytest.raises((RuntimeError, IndexError)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dovetail.compile(program, backend=backend)(x)
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")

"""What a program's calls of libraries are rehearsed with: on the CPU here, on a device in tests/gpu."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dovetail import building
from dovetail.ir.loops import LibraryCall
from dovetail.options import Options
from dovetail.runtime.gpu import warm_up
from tests.schedule.test_meaning import lowered

CPU, QUERY = torch.device("cpu"), torch.ones(1, 2, 16, 8)
X, W, IMAGES, KERNEL = torch.ones(96, 64), torch.ones(64, 64), torch.ones(2, 8, 12, 12), torch.ones(16, 8, 3, 3)

PROGRAMS = {
    # function, arguments, calls that look different
    "products": (lambda x, w: (x @ w, (x + 1) @ w), (X, W), 1),
    "layouts": (lambda x, w: (x @ w, x @ w.t()), (X, W), 2),
    "parts": (lambda x, w: x[::2] @ w, (X, W), 1),
    "convolution": (lambda i, k: F.conv2d(i, k, stride=2, padding=1), (IMAGES, KERNEL), 1),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q), (QUERY,), 1),
    "none of these libraries": (lambda x: torch.linalg.inv(x) + torch.sort(x)[0], (W,), 0),
}


@pytest.fixture(autouse=True)
def the_attention_of_cpus(monkeypatch):
    monkeypatch.setattr(warm_up, "_REHEARSED", warm_up._REHEARSED | {"_scaled_dot_product_flash_attention_for_cpu"})


def calls(name):
    fn, args, _ = PROGRAMS[name]
    program = lowered(fn, *args)
    return program, list(warm_up.distinct(program, CPU))


@pytest.mark.parametrize("name", PROGRAMS)
def test_distinct(name):
    assert len(calls(name)[1]) == PROGRAMS[name][2]


@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments_look_as_in_the_program(name):
    """The operator returns what the program expects of it."""
    _, found = calls(name)
    for call in found:
        results = call.operator(*warm_up._given(call.args), **warm_up._given(dict(call.kwargs)))
        for result, buffer in zip(results if isinstance(results, tuple) else (results,), call.results, strict=True):
            assert buffer is None or (tuple(result.shape), result.stride()) == (buffer.sizes, buffer.strides)


def test_what_draws_is_left_out():
    """Its gradient would read a seed where there is none."""
    operator = torch.ops.aten._scaled_dot_product_efficient_attention.default
    for dropout, found in (((), False), ((0.0,), False), ((0.5,), True)):
        call = LibraryCall("attention", operator, (None, None, None, None, False, *dropout), {}, ())
        assert warm_up._draws(call) == found


def test_another_device():
    program, _ = calls("products")
    assert not list(warm_up.distinct(program, torch.device("cuda", 0)))


def test_size():
    (call,) = calls("parts")[1]
    assert warm_up.size(call) == 4 * (95 * 64 - 64 + 64 + 64 * 64)


def test_what_fails_is_left_to_the_program():
    (call,) = calls("products")[1]
    warm_up.once(LibraryCall(call.name, torch.ops.aten.mm.default, (call.args[0], call.args[0]), {}, call.results))


RECORDED = {
    # options, what finds out sizes, why there is no CUDA graph
    "yes": ({}, "", ""),
    "not in this mode": ({"mode": "max-autotune-no-cudagraphs"}, "", "the mode has them off"),
    "not with this setting": ({"cudagraphs": False}, "", "config.cudagraphs is off"),
    "not between reading sizes": ({}, "aten.nonzero", "aten.nonzero finds out a size"),
}


@pytest.mark.parametrize("name", RECORDED)
def test_it_happens_where_the_program_will_run(name, monkeypatch):
    """On another stream cuBLAS would take memory that nobody uses."""
    options, waits, why = RECORDED[name]
    program = lowered(lambda x, w: ((x @ w) @ w @ w,), X, W)
    found = building.unrecorded(program, Options(**options), waits)
    assert found.startswith(why) and bool(found) == bool(why)

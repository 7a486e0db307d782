"""A sample of `make growth`: memory does not grow with what was compiled and is gone."""

from __future__ import annotations

import gc
import linecache
import weakref

import pytest
import torch

import dovetail
from dovetail.codegen.cpu import kernel
from dovetail.runtime.cpu import loading
from tests.e2e.growth import distinct, functions_and_resets

pytestmark = pytest.mark.usefixtures("small_heap")


def test_a_reset_leaves_nothing_of_functions_that_are_gone():
    counts = []
    for k in range(3):
        functions_and_resets(20 * k, 20)
        gc.collect()
        counts.append(len(gc.get_objects()))
    _, second, third = counts  # the first may find caches empty
    assert third - second < 200  # it was 200 for each function


def test_kernels_go_with_the_last_program_that_has_them():
    dovetail.reset()
    gc.collect()
    before, held = host_programs(), engines()  # of tests that ran before in this process, and still have theirs
    compiled = dovetail.compile(distinct(12345))
    compiled(torch.randn(4, 8))
    made = host_programs() - before
    gone = [weakref.ref(engine) for name, engine in engines().items() if name not in held]
    assert made and gone and kernel._known
    compiled = held = None
    dovetail.reset()
    gc.collect()
    assert not host_programs() & made
    assert [ref for ref in gone if ref() is not None] == []
    assert not kernel._known


def engines() -> dict[str, object]:
    return dict(loading._process.latest)


def host_programs() -> set[str]:
    return {name for name in linecache.cache if "<dovetail host program" in name}


def test_a_program_in_use_outlives_a_reset():
    x = torch.randn(4, 8, requires_grad=True)
    result = dovetail.compile(distinct(3))(x)
    dovetail.reset()
    gc.collect()
    result.sum().backward()
    want, = torch.autograd.grad(distinct(3)(x).sum(), x)
    torch.testing.assert_close(x.grad, want)

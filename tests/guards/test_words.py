"""The comparison loop and the layout that it relies on."""

from __future__ import annotations

import ctypes
from array import array

import pytest
import torch

from dovetail.guards.compare import Words
from dovetail.guards.layout import discover, words
from dovetail.guards.native import DictGroup, MemoryWatch, TensorGroup, TypeGroup, dict_group
from dovetail.guards.slots import Slot

LAYOUT = discover()
needs_layout = pytest.mark.skipif(LAYOUT is None, reason="the layout of this interpreter is unknown")


def address(block: array) -> int:
    return block.buffer_info()[0]


def test_the_first_difference_is_found() -> None:
    block = array("Q", range(100))
    runs = [(address(block), 3), (address(block) + 80, 1), (address(block) + 160, 40), (address(block) + 792, 1)]
    watched = Words(runs)
    assert watched.first_difference() == -1
    for changed, want in ((2, 0), (10, 1), (20, 2), (59, 2), (99, 3)):
        block[changed] += 1
        assert watched.first_difference() == want
        block[changed] -= 1
    for unwatched in (3, 11, 60, 98):
        block[unwatched] += 1
        assert watched.first_difference() == -1
    block[10] = 7
    watched.take(1, runs[1][0])
    assert watched.first_difference() == -1
    assert Words([]).first_difference() == -1


def test_nothing_behind_a_difference_is_read() -> None:
    block = array("Q", [1, 2])
    watched = Words([(address(block), 1), (address(block) + 8, 1)])
    watched._cells[2] = 8  # the second address: reading this would end the process
    block[0] = 5
    assert watched.first_difference() == 0


@needs_layout
def test_types() -> None:
    class A: ...

    class B: ...

    a = A()
    watched = MemoryWatch([TypeGroup(a)], LAYOUT)
    assert watched.check()
    a.__class__ = B
    assert not watched.check()
    a.__class__ = A
    assert watched.check()


@needs_layout
def test_dictionaries_look_closer() -> None:
    value, table = object(), {}
    table.update(k=value, other=1)
    groups: dict[int, DictGroup] = {}
    group = dict_group(groups, table)
    group.slots.append(Slot(table, "k", value))
    group.tests.append(lambda t: len(t) <= 3)
    watched = MemoryWatch([group], LAYOUT)
    table["other"] = 2
    assert watched.compare() == 0 and watched.check() and watched.compare() == -1
    table["more"] = 3
    assert watched.check()
    table["most"] = 4
    assert not watched.check()
    del table["most"]
    table["k"] = object()
    assert not watched.check()
    table["k"] = value
    assert watched.check()
    del table["k"]
    assert not watched.check()


METADATA = {
    "sizes": lambda d: d.reshape(3, 2),
    "rank": lambda d: d.reshape(6),
    "strides": lambda d: torch.ones(3, 2).t(),
    "dtype": lambda d: d.view(torch.int32),
    "wider dtype": lambda d: d.double(),
    "offset": lambda d: torch.ones(8)[2:].reshape(2, 3),
    "negative bit": torch._neg_view,
    "storage": torch.clone,
}


@needs_layout
@pytest.mark.parametrize("what", METADATA)
def test_tensor_metadata(what: str) -> None:
    t = torch.ones(2, 3)
    watched = MemoryWatch([TensorGroup(t, lambda: False)], LAYOUT)
    t.mul_(2)
    assert watched.check()
    t.data = METADATA[what](t.data)
    assert not watched.check()


@needs_layout
def test_requires_grad_and_storage() -> None:
    t, allowed = torch.ones(2, 3), [True]
    watched = MemoryWatch([TensorGroup(t, lambda: allowed[0])], LAYOUT)
    t.requires_grad_()
    assert watched.compare() >= 0 and watched.check() and watched.compare() == -1
    t.grad = torch.ones(2, 3)
    assert watched.compare() == -1, "gradients come and go"
    t.requires_grad_(False)
    allowed[0] = False
    assert not watched.check()
    t.requires_grad_()
    assert watched.check()
    t.detach().untyped_storage().resize_(0)
    assert not watched.check()


@needs_layout
def test_scalars_to_rank_five() -> None:
    for rank in range(6):
        t = torch.ones((2,) * rank)
        watched = MemoryWatch([TensorGroup(t, lambda: False)], LAYOUT)
        assert watched.check()
        t.data = torch.ones((3,) + (2,) * rank)
        assert not watched.check()


def test_words_reads_memory() -> None:
    block = (ctypes.c_uint64 * 3)(5, 6, 7)
    assert words(ctypes.addressof(block), 3) == (5, 6, 7)


UNDER = {
    "inference mode": torch.inference_mode,
    "a default device": lambda: torch.device("meta"),
    "grad": torch.enable_grad,
}


@needs_layout
@pytest.mark.parametrize("what", UNDER)
def test_the_layout_does_not_depend_on_the_programs_modes(what: str) -> None:
    with UNDER[what]():
        assert discover.__wrapped__() == LAYOUT
    torch.set_default_dtype(torch.float64)
    try:
        assert discover.__wrapped__() == LAYOUT
    finally:
        torch.set_default_dtype(torch.float32)

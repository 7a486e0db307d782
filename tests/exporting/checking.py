"""What tests of exported programs ask: does the program give what eager gives, itself and read back from a file?"""

from __future__ import annotations

import copy

import torch
from torch.utils import _pytree as pytree

import dovetail


def leaves(result):
    return [t.detach() if isinstance(t, torch.Tensor) else t for t in pytree.tree_leaves(result)]


def assert_same(result, expected, **tolerance):
    assert pytree.tree_structure(result) == pytree.tree_structure(expected)
    for got, wanted in zip(leaves(result), leaves(expected), strict=True):
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(got, wanted, **tolerance)
        else:
            assert type(got) is type(wanted) and got == wanted


def call(fn, args, kwargs=None):
    """The result for copies of the arguments, and what became of these."""
    torch.manual_seed(0)
    args, kwargs = copy.deepcopy((args, kwargs or {}))
    return fn(*args, **kwargs), args, kwargs


def check(model, args, kwargs=None, others=(), dynamic_shapes=None, path=None, **tolerance):
    """Export a copy of the model and compare it with the original for `args` and `others`, which are tuples of
    arguments; where there is a path, what is read back from there too. Gives the exported program."""
    program = dovetail.export(copy.deepcopy(model), args, kwargs, dynamic_shapes)
    ways = [program.module()]
    if path is not None:
        program.save(path)
        ways.append(dovetail.ExportedProgram.load(path).module())
    original = copy.deepcopy(model)
    for given in ((args, kwargs), *((other, kwargs) for other in others)):
        expected = call(original, *given)
        for way in ways:
            assert_same(call(way, *given), expected, **tolerance)
    return program

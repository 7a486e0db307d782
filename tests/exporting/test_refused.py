"""What no exported program can be, and messages that say so."""

from __future__ import annotations

import random
import re
import warnings

import pytest
import torch
from torch import nn

import dovetail
from dovetail.errors import GraphBreakError, InvalidArgument

X = torch.randn(3, 4)
KEPT = []


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


class Keeps(nn.Module):
    def __init__(self, **state):
        super().__init__()
        self.state, self.calls = state, 0

    def forward(self, x):
        self.calls += 1
        self.state["x"] = x
        return x


def keeps_globally(x):
    global LAST
    LAST = x
    return x


def sets_data(x):
    x.data = x * 2
    return x


def leaves_gradients_off(x):
    torch.set_grad_enabled(False)
    return x * 2


def checkpointed(x):
    return torch.utils.checkpoint.checkpoint(Doubled.apply, x * WITH_GRADIENT, use_reentrant=False)


CHANGES = {
    "attributes": (Keeps(), "the program changes what is outside of it: self.calls; self.state"),
    "lists": (lambda x: KEPT.append(x), "the program changes what is outside of it: KEPT"),
    "globals": (keeps_globally, "the global variable LAST"),
    "modes": (leaves_gradients_off, "modes or context variables that are left changed"),
    "Python's random numbers": (lambda x: x * random.random(), "random numbers that Python or NumPy draws"),
    "hooks": (lambda x: (x * WITH_GRADIENT).register_hook(print), "hooks"),
    "another memory": (sets_data, "the program's graph calls set_data"),
    "code of its own": (lambda x: Doubled.apply(x * WITH_GRADIENT), "code of its own for the gradients of Doubled"),
    "code inside of functions": (checkpointed, "code of its own for the gradients of Doubled"),
    "objects": (lambda x: [{"a": object()}], "the result[0]['a'] is a builtins.object"),
    "arrays": (lambda x: x.numpy(), "the result is a numpy.ndarray"),
    "branches on values": (lambda x: x if x.sum() > 0 else -x, "branches on the value of a tensor"),
}
WITH_GRADIENT = nn.Parameter(torch.ones(4))


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_more_than_a_graph(name):
    program, words = CHANGES[name]
    with pytest.raises(GraphBreakError, match=re.escape(words)) as raised:
        dovetail.export(program, (X.clone(),))
    assert torch.is_grad_enabled() and KEPT == [] and "\n  What to do: " in str(raised.value)
    if not words.startswith("the result"):  # the line, and what of it
        assert re.search(rf'File "{re.escape(__file__)}", line \d+, in .*\n.*\n +\^+', str(raised.value))


def test_nothing_of_the_model_changes():
    model = nn.BatchNorm1d(4)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    state = torch.get_rng_state()
    dovetail.export(model, (X,))
    assert all(t.equal(before[name]) for name, t in model.state_dict().items()) and not vars(X)
    assert torch.get_rng_state().equal(state)


def test_calls_that_are_left_out_are_told():
    def says(x):
        print("called")
        return x

    with pytest.warns(UserWarning, match="the exported program does not call print"):
        dovetail.export(says, (X,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dovetail.export(lambda x: x, (X,))


ARGUMENTS = {
    "no tuple": (lambda x: x, X, None, "args must be a tuple of arguments, not Tensor: write (x,)"),
    "too many": (lambda x: x, (X, X), None, "args and kwargs do not fit the program: too many positional arguments"),
    "an unknown name": (lambda x: x, (X,), {"y": X}, "got an unexpected keyword argument 'y'"),
    "objects": (lambda x: x, (object(),), None, "x is a builtins.object; an exported program takes tensors"),
    "arrays": (lambda x: x, (X.numpy(),), None, "x is a numpy.ndarray"),
    "classes of tensors": (lambda d: d, ({"a": X.as_subclass(type("Own", (torch.Tensor,), {}))},), None, "d['a'] is a"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_make_no_sense(name):
    function, args, kwargs, words = ARGUMENTS[name]
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        dovetail.export(function, args, kwargs)


PROGRAMS = {
    "a class": (nn.Linear, "not the class Linear: make an object of it"),
    "nothing": (None, "not None, a NoneType"),
    "an exported program": (dovetail.export(nn.Identity(), (X,)), "its module() can be exported"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_no_program(name):
    program, words = PROGRAMS[name]
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        dovetail.export(program, (X,))


def test_autocast_around_export():
    with torch.autocast("cpu"), pytest.raises(InvalidArgument, match="autocast is on for cpu"):
        dovetail.export(lambda x: x @ x.t(), (X,))


def with_constants(x, d, mode="a"):
    return x * d["n"] if mode == "a" else x


CALLS = {
    "another constant": (((X, {"n": 3, "y": X}), {}), "d['n'] is 3; the program is exported for 2"),
    "another type": (((X, {"n": 2.0, "y": X}), {}), "d['n'] is 2.0; the program is exported for 2"),
    "another structure": (((X, {"n": 2}), {}), "takes (x, d['n'], d['y']); it was called with (x, d['n'])"),
    "too few": (((X,), {}), "takes the arguments (x, d); it was called with 1 by position and none by name"),
    "an unknown one": (((X,), {"e": 1}), "it was called with 1 by position and e by name"),
    "one twice": (((X, {"n": 2, "y": X}), {"x": X}), "it was called with 2 by position and x by name"),
    "another dtype": (((X.double(), {"n": 2, "y": X}), {}), "x is torch.float64; the program is exported"),
    "another rank": (((X[0], {"n": 2, "y": X}), {}), "x has 1 dimensions; the program is exported for 2"),
    "another size": (((X[1:], {"n": 2, "y": X}), {}), "x.shape[0] is 2; the program is exported for 3"),
    "no tensor": (((1, {"n": 2, "y": X}), {}), "x must be a tensor, not int"),
    "sparse tensors": (((X.to_sparse(), {"n": 2, "y": X}), {}), "x is laid out as torch.sparse_coo"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_do_not_fit(name):
    module = dovetail.export(with_constants, (X, {"n": 2, "y": X})).module()
    (args, kwargs), words = CALLS[name]
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        module(*args, **kwargs)


def test_floats_that_are_constants():
    module = dovetail.export(lambda x, a, b: x * a + b, (X, float("nan"), 0.0)).module()
    assert module(X, float("nan"), 0.0).isnan().all()
    for wrong in ((0.0, 0.0), (float("nan"), -0.0)):
        with pytest.raises(InvalidArgument, match="the program is exported for"):
            module(X, *wrong)


def test_modes_of_modules():
    module = dovetail.export(nn.Dropout(), (X,)).module()
    assert module.train() is module
    with pytest.raises(InvalidArgument, match="was exported in training mode"):
        module.eval()

"""Graphs end inside functions that the interpreter calls on its own: no call of theirs is left to plain Python."""

from __future__ import annotations

import contextlib
import functools
import traceback
import warnings

import pytest
import torch

import dovetail
from tests.capture.harness import compare


def measured(x):
    y = x.sin()
    return y.cos() * y.sum().item()


class Box:
    def __init__(self, value, log=None):
        self.log = [] if log is None else log
        self.value = measured(value)
        self.log.append("made")

    @property
    def size(self):
        self.log.append("size")
        return measured(self.value) + 1

    @property
    def missing(self):
        self.value.sum().item()
        raise AttributeError("not here")


class Number:
    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        size = self.value.sum().item()
        return Number(self.value + size + other) if not isinstance(other, Text) else NotImplemented

    def __radd__(self, other):
        return Number(self.value * self.value.max().item() - other)

    def __isub__(self, other):
        self.value = self.value - other * self.value.min().item()
        return self

    def __mul__(self, other):
        self.value.sum().item()
        return NotImplemented

    def __getitem__(self, index):
        if index == self.value.sum().item():
            raise IndexError(index)
        return measured(self.value) + index

    def __call__(self, x, scale=1):
        return measured(x) * self.value * scale


class Text(str):
    def __radd__(self, other):
        return f"{other.value.sum().item():.3f}{self}"


class Lazily:
    def __init__(self, x):
        self.x = x

    def __getattr__(self, name):
        if name != "late":
            raise AttributeError(name)
        self.late = measured(self.x)
        return self.late


class Descriptor:
    def __get__(self, obj, owner):
        return measured(obj.x)


class Described:
    computed = Descriptor()

    def __init__(self, x):
        self.x = x


class Manager:
    def __init__(self, x, log, catches=False):
        self.x, self.log, self.catches = x, log, catches

    def __enter__(self):
        self.log.append(self.x.sum().item())
        return measured(self.x)

    def __exit__(self, kind, error, trace):
        self.log.append((str(error), self.x.max().item()))
        return self.catches


@contextlib.contextmanager
def managed(x, log):
    log.append(x.sum().item())
    try:
        yield measured(x)
    except ValueError as error:
        log.append((str(error), x.min().item()))
    finally:
        log.append(x.max().item())


class Child(Box):
    def __init__(self, value, log=None):
        super().__init__(value + 1, log)
        self.more = measured(self.value)


class Hooked(torch.nn.Module):
    def forward(self, x, scale=1):
        return measured(x) * scale


def made(x):
    box = Box(x)
    return box.value + 1, box.log


def made_by_child(x):
    box = Child(x * 2, log=["first"])
    return box.value, box.more, box.log


def made_here(x):
    class Local:
        def __init__(self, k):
            self.v = measured(x) + k

    return Local(1).v * Local(2).v


def read_property(x):
    box = Box(x)
    return box.size * 2, box.log


def missing_property(x):
    try:
        return Box(x).missing
    except AttributeError as error:
        return str(error), x + 1


def added(x):
    return (Number(x) + 1).value * 2


def added_from_the_right(x):
    return (3 + Number(x)).value * 2


def added_not_implemented(x):
    return Number(x) + Text("!"), x + 1


def added_in_place(x):
    number = same = Number(x)
    number -= 2
    return number.value, same is number


def not_multiplied(x):
    try:
        return Number(x) * 2
    except TypeError as error:
        return str(error), x + 1


def called(x):
    return Number(x)(x + 1, scale=2) + 1


def indexed(x):
    number = Number(x)
    try:
        return number[1] + 1, number[x.sum().item()]
    except IndexError as error:
        return str(error), number[7] * 2


def lazily(x):
    made = Lazily(x)
    return made.late + made.late, hasattr(made, "other")


def described(x):
    return Described(x).computed + 1


def entered(x):
    log = []
    with Manager(x, log) as y:
        z = y + 1
    return z * 2, log


def entered_with_error(x):
    log = []
    with Manager(x, log, catches=True) as y:
        log.append("inside")
        raise ValueError("here")
    return y * 2, log


def generated(x):
    log = []
    with managed(x, log) as y:
        z = y + x.prod().item()
    return z * 2, log


def generated_with_error(x):
    log = []
    with managed(x, log) as y:
        raise ValueError(f"{x.prod().item():.3f}")
    return y * 2, log


def hooked(x):
    module, log = Hooked(), []
    module.register_forward_pre_hook(lambda m, args: log.append(args[0].sum().item()))
    module.register_forward_hook(lambda m, args, out: out + 1)
    return module(x, scale=2) + 1, log


OUTSIDE = Hooked()
OUTSIDE.register_forward_hook(lambda m, args, out: out + out.sum().item())


def hooked_outside(x):
    return OUTSIDE(x) + 1


def partial(x):
    return functools.partial(measured, x)() + functools.partial(Number(x), scale=3)(x)


def in_a_loop(x):
    total = x
    for k in range(3):
        total = (Number(total) + k).value + Box(total).size
    return total


def nested(x):
    return made_by_child((Number(x) + Box(x).size).value)


def stance(x):
    y = x + 1
    with dovetail.set_stance("force_eager"):
        y = measured(y)
    return y.cos()


INSIDE = (
    made, made_by_child, made_here, read_property, missing_property, added, added_from_the_right,
    added_not_implemented, not_multiplied, called, lazily, described, entered, entered_with_error, hooked_outside,
    partial, in_a_loop, nested, generated, indexed, added_in_place,
)  # fmt: skip
FURTHER_OUT = (stance, hooked, generated_with_error)


def parts(compiled):
    first = compiled._dovetail_dispatcher
    return [first, *first.compiler.rests.values()]


@pytest.mark.parametrize("function", (*INSIDE, *FURTHER_OUT))
def test_results_are_those_of_eager(function):
    compiled = dovetail.compile(function, backend="eager")
    for x in (torch.tensor([0.5, 1.5]), torch.tensor([-0.5, 2.0]), torch.tensor([0.25, 1.0, 2.0])):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compare(compiled(x.clone()), function(x.clone()))
    assert not any(part.eager for part in parts(compiled))


@pytest.mark.parametrize("function", INSIDE)
def test_graph_ends_where_the_reason_lies(function):
    compiled = dovetail.compile(function, backend="eager")
    compiled(torch.tensor([0.5, 1.5]))
    breaks = [b for part in parts(compiled) for entry in part.entries for b in entry.captured.breaks]
    assert breaks and not any(b.refusals for b in breaks), [b.refusals for b in breaks]


class Raising:
    def __init__(self, x):
        if x.sum() > 0:
            raise ValueError(x.sum().item())

    def __add__(self, other):
        return self.fail(other.sum().item())

    def fail(self, value):
        raise KeyError(value)


def raises_while_made(x):
    return Raising(x)


def raises_while_added(x):
    return Raising(-x) + x


@pytest.mark.parametrize(
    ("function", "error", "names"),
    ((raises_while_made, ValueError, ["__init__"]), (raises_while_added, KeyError, ["__add__", "fail"])),
)
def test_traceback_names_the_users_frames_in_order(function, error, names):
    compiled = dovetail.compile(function, backend="eager")
    for _ in range(2):
        with pytest.raises(error) as caught:
            compiled(torch.ones(2))
        frames = traceback.extract_tb(caught.value.__traceback__)
        own = [frame.name for frame in frames if frame.filename == __file__]
        assert own[1:] == [function.__name__, *names]
        assert not any("polyfills" in frame.filename for frame in frames)

"""Programs of all kinds, exported: what they give is eager's, read back from a file too."""

from __future__ import annotations

import functools
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

import dovetail

from .checking import check

Pair = namedtuple("Pair", "first second")
pytree._register_namedtuple(Pair, serialized_type_name="tests.exporting.Pair")


@dataclass
class Point:
    x: torch.Tensor
    y: torch.Tensor
    name: str = "p"


pytree.register_dataclass(Point, serialized_type_name="tests.exporting.Point")

SCALE = torch.tensor([1.0, 2.0, 3.0, 4.0])
WEIGHT = nn.Parameter(torch.arange(4.0))
X, Y = torch.randn(3, 4), torch.randn(3, 4)


def writes(x):
    x.add_(1)
    return x * 2


def without_gradients(x):
    with torch.no_grad():
        y = x * 2
    return x + y


def in_half(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
    return y.float() + 1


def of_sizes(x):
    n, m = x.shape
    return x.reshape(m, n), n, n * m, (n, m), x.shape


def of_constants(x, n, flag, mode, none):
    return x * n if flag and mode == "a" and none is None else x


def counts(x, *more, scale=1, **named):
    total = sum(more, x) * scale
    for name in sorted(named):
        total = total - named[name]
    return total


@torch.library.custom_op("export_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def of_operators(x):
    return twice(x), torch.ops.export_tests.twice(x), torch.ops.aten.add.Tensor(x, x), torch.ops.aten.sin(x)


def takes_its_own(x, **settings):
    scale = settings.pop("scale")
    settings["rest"] = 1
    return x * scale + len(settings)


def says_that_it_exports(x):
    return x + 1 if torch.compiler.is_exporting() else x


def of_values(x):
    found = x[x > 0]
    torch._check(found.shape[0] <= 12)
    return found * 2, found.shape[0], torch.zeros(4)[:3] + x.nonzero()[0, 0]


PROGRAMS = {
    "native functions": (torch.sin, (X,)),
    "partial functions": (functools.partial(F.linear, weight=torch.ones(2, 4)), (X,)),
    "sizes that values have": (of_values, (X,)),
    "operators": (of_operators, (X,)),
    "pointwise": (lambda x, y: torch.sin(x) * y + x.relu(), (X, Y)),
    "methods and operators": (lambda x, y: (x @ y.t()).softmax(-1)[1:, ::2].abs() ** 2 // 1, (X, Y)),
    "functions of nn.functional": (lambda x: F.layer_norm(F.gelu(x), (4,)) + F.pad(x, (1, -1)), (X,)),
    "constants from outside": (lambda x: x * SCALE + WEIGHT, (X,)),
    "a constant of the result": (lambda x: (SCALE, x + 1), (X,)),
    "dictionaries": (lambda d: {"sum": d["a"] + d["b"][0], "rest": [None, 1, 2.5, "t", True]}, ({"a": X, "b": (Y,)},)),
    "named tuples": (lambda p: Pair(p.second, p.first * 2), (Pair(X, Y),)),
    "data classes": (lambda p: Point(p.y, p.x + 1, p.name), (Point(X, Y),)),
    "an argument as it came": (lambda x, y: (x, y, x), (X, Y)),
    "views of arguments": (lambda x: (x.t(), x[0], x.view(-1)), (X,)),
    "several results": (lambda x: tuple(x.max(1)), (X,)),
    "numbers and texts": (of_constants, (X, 3, True, "a", None)),
    "writes to an argument": (writes, (X,)),
    "a block without gradients": (without_gradients, (X,)),
    "a block of autocast": (in_half, (X,)),
    "sizes": (of_sizes, (X,)),
    "dtypes and devices": (lambda x: (x.to(torch.float64), torch.zeros(2, device=x.device, dtype=x.dtype)), (X,)),
    "infinities": (lambda x: x.masked_fill(x > 0, float("-inf")).clamp(max=float("inf")), (X,)),
    "random numbers": (lambda x: F.dropout(x, 0.5) + torch.rand(4), (X,)),
    "indices and slices": (lambda x, i: x[i, :, None][..., 1:], (X, torch.tensor([2, 0]))),
    "stores by index": (lambda x: torch.zeros(3, 4).index_put((torch.tensor([1]),), x[0]), (X,)),
    "memory formats": (lambda x: x.view(1, 3, 2, 2).to(memory_format=torch.channels_last), (X,)),
    "all kinds of parameters": (counts, (X, Y, Y)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions(name, tmp_path):
    function, args = PROGRAMS[name]
    check(function, args, others=[tuple(pytree.tree_map(_other, args))], path=tmp_path / "program.dt")


def _other(leaf):
    return leaf + 0.5 if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def test_arguments_by_name(tmp_path):
    program = check(counts, (X,), {"scale": 2, "b": Y, "a": X}, path=tmp_path / "program.dt")
    expected = counts(X, scale=2, a=X, b=Y)
    torch.testing.assert_close(program.module()(scale=2, a=X, x=X, b=Y), expected)


def test_a_dictionary_of_keywords_is_the_programs_own():
    check(takes_its_own, (X,), {"scale": 2, "more": 3})


def test_programs_may_ask_whether_they_are_exported():
    assert dovetail.export(says_that_it_exports, (X,)).module()(X).equal(X + 1)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("mask", torch.ones(7), persistent=False)
        self.table = torch.arange(7.0)

    def forward(self, x):
        return self.head(self.embedding(x)) * self.mask + self.table


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("last", torch.zeros(4))
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        self.calls.add_(1)
        self.last = x.sum(0)
        return self.norm(x) + self.last


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 5, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.lstm(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        return self.layer(x)


MODELS = {
    "tied weights": (Tied(), (torch.tensor([1, 2, 6]),)),
    "buffers that change": (Counting(), (X,)),
    "frozen statistics": (Counting().eval(), (X,)),
    "recurrent layers": (Recurrent(), (torch.randn(2, 3, 4),)),
    "dropout and attention": (Attention(), (torch.randn(2, 3, 8),)),
    "attention for inference": (Attention().eval(), (torch.randn(2, 3, 8),)),
    "parametrizations": (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), (X,)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name, tmp_path):
    model, args = MODELS[name]
    program = check(model, args, others=[(args[0].flip(0),)], path=tmp_path / "program.dt")
    made = program.module()
    assert list(made.state_dict()) == list(model.state_dict())
    assert [n for n, _ in made.named_parameters()] == [n for n, _ in model.named_parameters()]

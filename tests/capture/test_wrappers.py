"""Tensor subclasses that are made of other tensors: inputs, parameters and results of compiled functions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import dovetail
from tests.capture.whole import breaks, whole
from tests.capture.wrapper_classes import Int8, Scaled, Swapping, Twice

BACKENDS = ("eager", "aot_eager", "dovetail")


def x():
    return torch.randn(3, 4)


def two():
    return TwoTensor(torch.randn(3, 4), torch.randn(3, 4))


def two_leaf():
    return two().requires_grad_()


def two_inside():
    made = two_leaf() * 2
    made.retain_grad()
    return made


def nested():
    return TwoTensor(two(), two())


def nested_leaf():
    return nested().requires_grad_()


def scaled():
    return Scaled(torch.randn(3, 4), torch.tensor(3.0), "m")


def scaled_leaf():
    return scaled().requires_grad_()


def leaf():
    return torch.randn(3, 4, requires_grad=True)


class Layer(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=weight.is_floating_point() and not isinstance(weight, Int8))
        self.bias = nn.Parameter(torch.randn(weight.shape[0]))

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


def layer_of_two():
    return Layer(TwoTensor(torch.randn(5, 4), torch.randn(5, 4)))


def layer_of_int8():
    return Layer(Int8.of(torch.randn(5, 4)))


def in_place(t):
    t.add_(1)
    return t * 2


def view_in_place(t):
    t.view(-1)[2:5].mul_(2)
    return t + 1


def looped(t):
    n = torch.tensor(0)
    return torch.while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * t.a), (n, t.b + (t * 2).a))


def made_inside(x):
    made = TwoTensor(x, x.sin())
    made.mul_(2)
    return made + 1, made.a, type(made) is TwoTensor, x


class Odd:
    """Equal to nothing else."""


@dataclass
class Unit:
    name: str

    def __add__(self, other):
        return Unit(self.name + other)


def scaled_inside(x, unit):
    made = Scaled(x + 1, x.sum(), unit)
    return made * 2, made.value, made.unit.name, made.factor


def without_history(t):
    with torch.no_grad():
        y = t * 2
    return y + t


WHOLE = {
    "pointwise": (lambda t: t.sin() + 1, two),
    "with a plain one": (lambda t, x: (t * x, x + t, torch.cat([t, x])), two, x),
    "product": (lambda t, x: (t @ x.t()).relu().sum(0), two, x),
    "class": (lambda t: (type(t * 2) is TwoTensor, isinstance(t, TwoTensor), t.shape, (t * 2).dtype), two),
    "itself": (lambda t: t, two),
    "gradient": (lambda t: (t * t).sin(), two_leaf),
    "gradients of both": (lambda t, x: (t * x).exp(), two_leaf, leaf),
    "several results": (lambda t, x: (t.sin(), (t * x).sum(), x + 1), two_leaf, leaf),
    "nested": (lambda t: t.sin() * 2, nested),
    "nested, gradient": (lambda t, x: (t.sin() * x).sum(1), nested_leaf, leaf),
    "what it is made of": (lambda t: (t.a + 1, (t * 2).b, t.get_elem_a()), two),
    "views": (lambda t: (t.t(), t[0], t.view(4, 3).sum(0)), two),
    "in place": (in_place, two),
    "in place through a view": (view_in_place, two),
    "in place on a plain one": (lambda t, x: (x.mul_(2), t * x), two, x),
    "no grad inside": (without_history, two_leaf),
    "detached": (lambda t: t.detach() * t, two_leaf),
    "two of one": (lambda t, u: t * u + t, two_leaf, two_leaf),
    "a layer": (lambda layer, x: layer(x).relu(), layer_of_two, x),
    "a layer of eight bits": (lambda layer, x: layer(x).relu(), layer_of_int8, x),
    "a layer of eight bits, gradient": (lambda layer, x: layer(x).relu(), layer_of_int8, leaf),
    "context": (lambda t: (t * 2, (t + 1).unit, t.unit), scaled),
    "context, gradient": (lambda t: (t.sin() + t).sum(1), scaled_leaf),
    "a property": (lambda t: ((t + 1).value, t.value), scaled),
    "in place, context": (in_place, scaled),
    "constant": (lambda t: t + torch.tensor([1.0, 2.0, 3.0, 4.0]), two),
    "random": (lambda t: t + torch.rand_like(t), two),
    "dropout": (lambda t: F.dropout(t * 2), two_leaf),
    "vmap": (lambda t: torch.func.vmap(torch.sin)(t), two),
    "operators of its own": (lambda t: (t * 3).sin(), lambda: Twice(torch.randn(3))),
    "operators of its own, gradient": (lambda t: (t * 3).sin(), lambda: Twice(torch.randn(3)).requires_grad_()),
    "made inside": (made_inside, x),
    "made inside of tensors, context": (lambda x, u: scaled_inside(x, u), x, lambda: Unit("m")),
    "made inside, nested": (lambda x: TwoTensor(TwoTensor(x, x + 1), TwoTensor(x, x * 2)).sin(), x),
    "made inside of one from outside": (lambda t, x: (Int8.of(x).dequantized(), TwoTensor(t.b, t.a) * t), two, x),
    "made inside beside a gradient": (lambda x: (x * 2, TwoTensor(x.detach(), x.detach() * 2).a * x), leaf),
    "swapped inside": (lambda t: (t.add_(1), t * 2, t.inside), lambda: Swapping(torch.randn(3))),
}


ONCE = {"computed from": (lambda t: t.cos() * t, two_inside), "in place": (in_place, two_inside)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ONCE)
def test_whole_with_a_history(name, backend):
    whole(*ONCE[name], backend=backend, calls=1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", WHOLE)
def test_whole(name, backend):
    whole(*WHOLE[name], backend=backend)


BREAKS = {
    "attribute stored": ("tensor-subclass", lambda t: (setattr(t, "unit", "s"), t * 2)[1], scaled),
    "made inside of an object": ("tensor-subclass", lambda x, o: Scaled(x, x.sum(), o).value, x, Odd),
    "value": ("data-dependent-branch", lambda t: t * 2 if t.a.sum() > 0 else t + 1, two),
    "in a loop": ("tensor-subclass", looped, two),
}


@pytest.mark.parametrize("name", BREAKS)
def test_breaks(name):
    breaks(*BREAKS[name])


def entries(compiled, *calls):
    """How many entries there are after each of these calls, whose results are eager's."""
    counts = []
    for given in calls:
        compiled(*given)
        counts.append(len(compiled._dovetail_dispatcher.entries))
    return counts


@pytest.mark.parametrize("backend", BACKENDS)
def test_class_context_and_metadata_are_guarded(backend):
    compiled = dovetail.compile(lambda t: t * 2, fullgraph=True, backend=backend)
    a = torch.ones(2, 2)
    same = [(TwoTensor(a, a + 1),), (TwoTensor(a + 1, a),)]
    others = [(TwoTensor(a.double(), a.double()),), (TwoTensor(a.t(), a.t()),), (TwoTensor(two(), two()),)]
    units = [(Scaled(a, a[0, 0], unit),) for unit in ("m", "m", "s")]
    shapes = [(Scaled(a, a[0], "m"),)]
    assert entries(compiled, *same, *others, *units, *shapes) == [1, 1, 2, 3, 4, 5, 5, 6, 7]
    assert compiled(*units[2]).unit == "s*"


class Uncomparable:
    pass


def test_a_context_that_compares_equal_to_nothing_breaks():
    context = Uncomparable()
    breaks("tensor-subclass", lambda t: t + 1, lambda: Scaled(torch.ones(3), torch.ones(1), context))


class Places:
    """As a mesh is known by a tensor of ranks."""

    def __init__(self):
        self.ranks = torch.arange(3)

    def __eq__(self, other):
        return torch.equal(self.ranks, other.ranks)


def test_a_context_may_hold_tensors():
    compiled = dovetail.compile(lambda t: (t + 1).value, fullgraph=True)
    for factor in (2.0, 3.0):
        found = compiled(Scaled(torch.ones(3), torch.tensor(factor), Places()))
        torch.testing.assert_close(found, torch.full((3,), 2 * factor))


def test_a_user_backend_sees_operators_of_the_class():
    seen = []

    def backend(graph, inputs):
        seen.append(([type(i) for i in inputs], [n.target for n in graph.graph.nodes if n.op == "call_method"]))
        return graph

    given = two()
    assert type(dovetail.compile(lambda t: t.sin(), backend=backend, fullgraph=True)(given)) is TwoTensor
    assert seen == [([TwoTensor], ["sin"])]


def test_a_parameter_that_is_made_of_others_is_one():
    """By a mark, since its class is its own."""
    layer = Layer(nn.Parameter(two()))
    assert isinstance(layer.weight, nn.Parameter) and type(layer.weight) is TwoTensor
    compiled = dovetail.compile(lambda t: t.sin() if isinstance(t, nn.Parameter) else t.cos(), fullgraph=True)
    for given in (layer.weight, two(), x(), nn.Parameter(x())):
        expected = given.sin() if isinstance(given, nn.Parameter) else given.cos()
        torch.testing.assert_close(compiled(given), expected)

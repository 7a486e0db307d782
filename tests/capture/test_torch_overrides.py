"""`__torch_function__`: subclasses of Tensor, objects of other classes, modes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import dovetail
from tests.capture.whole import breaks, whole


class Plain(torch.Tensor):
    @property
    def first(self):
        return self[0]

    def twice(self):
        return self * 2


class Tagged(torch.Tensor):
    """Carries a tag, and marks what was computed from it."""

    @staticmethod
    def __new__(cls, data, tag=None):
        made = torch.Tensor._make_subclass(cls, data)
        made.tag = tag
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, Tagged):
            out.tag = "computed"
        return out


class Multiplying(torch.Tensor):
    """Its sums are products, whichever way they are written."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        swapped = torch.mul if func in (torch.add, torch.Tensor.add, torch.Tensor.add_) else func
        return super().__torch_function__(swapped, types, args, kwargs or {})


class Sizeless(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func == torch.Tensor.shape.__get__:
            return (7,)
        return super().__torch_function__(func, types, args, kwargs or {})


class Asked(torch.Tensor):
    """Lists what it is asked."""

    asked: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Asked.asked.append(repr(func).split(" at ")[0])
        return super().__torch_function__(func, types, args, kwargs or {})


class Below(Plain):
    """A subclass of a subclass goes first."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class Box:
    def __init__(self, inside):
        self.inside = inside

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return Box(func(*[a.inside if isinstance(a, Box) else a for a in args], **(kwargs or {})))


class Weight(nn.Parameter):
    pass


class SinPlusOne(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out + 1 if func is torch.sin else out


class Listing(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


class SinIsCos(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        sine = torch.ops.aten.sin.default
        return (torch.ops.aten.cos.default if func is sine else func)(*args, **(kwargs or {}))


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inside):
        return torch.Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype)

    def __init__(self, inside):
        self.inside = inside

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*[a.inside if isinstance(a, cls) else a for a in args], **(kwargs or {})) * 2


def of(cls):
    return lambda: torch.randn(3, 4).as_subclass(cls)


def leaf_of(cls):
    return lambda: torch.randn(3, 4).as_subclass(cls).requires_grad_()


def x():
    return torch.randn(3, 4)


def disabled(t):
    with torch._C.DisableTorchFunctionSubclass():
        return torch.add(t, t)


def in_mode(x):
    with SinPlusOne():
        y = torch.sin(x)
        with SinPlusOne():
            y = y + torch.sin(x)
    return y + torch.sin(x)


def listed(x):
    mode = Listing()
    with mode:
        y = torch.sin(x).add(1)
        z = F.relu(2 - x) @ x.T
    return y, z, mode.names


def on_meta(x):
    with torch.device("meta"):
        made = torch.ones(3)
    return made.device, torch.ones(2) + x[0, :2]


def in_dispatch_mode(x):
    with SinIsCos():
        return torch.sin(x)


WHOLE = {
    "operators": (lambda t: t * 2 + 1 - t / 3, of(Plain)),
    "class of results": (lambda t: (type(t * 2) is Plain, isinstance(t.sum(), Plain), type(t.shape)), of(Plain)),
    "with plain tensors": (lambda t, x: (torch.cat([x, t]), x + t, torch.stack((t, x)).sum(0)), of(Plain), x),
    "methods of its own": (lambda t: t.twice() + t.first, of(Plain)),
    "views and splits": (lambda t: (t.T, t[0], t.split(2, 1), t.unbind()), of(Plain)),
    "in place": (lambda t: t.add_(1).mul_(2), of(Plain)),
    "in place on a plain tensor": (lambda x, t: x.add_(t), x, of(Plain)),
    "functional": (lambda t: F.gelu(F.linear(t, t)).softmax(-1), of(Plain)),
    "layers": (lambda t, layer: layer(t), of(Plain), lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU())),
    "gradient": (lambda t: (t * t).sum(), leaf_of(Plain)),
    "itself": (lambda t: t, of(Plain)),
    "one below": (lambda a, b: (a + b, b + a), of(Plain), of(Below)),
    "attributes": (lambda t: ((t * 2).tag, t.tag), lambda: Tagged(torch.randn(3), "given")),
    "attributes that leave": (lambda t: t * 2, lambda: Tagged(torch.randn(3), "given")),
    "overridden function": (lambda t: torch.add(t, t), of(Multiplying)),
    "overridden operator": (lambda t: (t + t, 1 + t, t - t), of(Multiplying)),
    "overridden in place": (lambda t: t.add_(3), of(Multiplying)),
    "overridden attribute": (lambda t: (t.shape, (t * 2).shape, t.dtype), of(Sizeless)),
    "overriding off": (disabled, of(Multiplying)),
    "as_subclass": (lambda x: x.as_subclass(Plain) * 2, x),
    "as_subclass and back": (lambda x: (x.as_subclass(Plain) * 2).as_subclass(torch.Tensor), x),
    "made inside": (lambda x: (Tagged(x, 3).tag, Tagged(x, 3) + 1), x),
    "_make_subclass": (lambda x: torch.Tensor._make_subclass(Plain, x) * 2, x),
    "from numbers": (lambda x: Plain([1.0, 2.0]) * 2, x),
    "parameter subclass": (lambda w, x: w * x, lambda: Weight(torch.randn(3, 4)), x),
    "other objects": (lambda x: (torch.sum(Box(x)).inside, torch.add(x, Box(x)).inside, F.relu(Box(x)).inside), x),
    "other objects from outside": (lambda b: torch.add(b, 1).inside, lambda: Box(torch.randn(3))),
    "modes": (in_mode, x),
    "a mode that lists": (listed, x),
    "a device": (on_meta, x),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole(name):
    whole(*WHOLE[name])


def test_classes_that_see_operators_stay_eager():
    breaks("tensor-subclass", lambda t: t + 1, lambda: Wrapper(torch.ones(3)))


def test_dispatch_modes_stay_eager():
    breaks("opaque-call", in_dispatch_mode, x)


def test_another_class_recompiles():
    compiled, plain = dovetail.compile(lambda t: t + t, fullgraph=True, backend="eager"), torch.ones(2)
    assert torch.equal(compiled(plain), plain + plain)
    product = compiled((plain * 3).as_subclass(Multiplying))
    assert type(product) is Multiplying and product.tolist() == [9, 9]
    assert type(compiled(plain.as_subclass(Plain))) is Plain


def test_a_mode_around_the_call_sees_it_once():
    compiled = dovetail.compile(lambda x: torch.sin(x) * 2, fullgraph=True, backend="eager")
    x = torch.ones(2)
    compiled(x)
    with Listing() as mode:
        result = compiled(x)
    assert mode.names == ["sin", "mul"] and torch.equal(result, x.sin() * 2)


def test_compiling_asks_no_class():
    compiled, asked = dovetail.compile(lambda t: t * 2, backend="eager", fullgraph=True), []
    for size in (3, 4, 5, 5):
        t = torch.randn(size, 2).as_subclass(Asked)
        Asked.asked.clear()
        compiled(t)
        asked.append(list(Asked.asked))
    assert asked == [["<method 'mul' of 'torch._C.TensorBase' objects>"]] * 4

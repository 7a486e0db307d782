"""Which changes between two calls recompile, and which do not; the result is eager's either way."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import dovetail

X = torch.randn(3, 4)
SCALE: Any = 2.0
UNREAD = 1


class Holder:
    def __init__(self) -> None:
        self.mode, self.other = "up", 1
        self.items, self.table, self.chosen = [1.0, 2.0], {"a": 1.0, "b": 2.0}, {1, 2}
        self.tensor, self.maybe = torch.ones(4), None


class OtherHolder(Holder): ...


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.drop = nn.Linear(4, 4), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).sum() + (1 if self.training else 0)


def read_global() -> Any:
    def f(x):
        return x * SCALE

    return f, globals()


def read_cell() -> Any:
    act = torch.relu

    def f(x):
        return act(x)

    def change(new):
        nonlocal act
        act = new

    return f, change


def reading(body: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    def make():
        holder = Holder()
        return lambda x: body(x, holder), holder

    return make


def in_order(x, o):
    for key, value in o.table.items():
        x = x * value + (1 if key == "a" else 3)
    return x


def with_default() -> Any:
    def f(x, k="a"):
        return x * 2 if k == "a" else x * 3

    return f, f


def with_keyword() -> Any:
    def f(x, *, k="a"):
        return x * 2 if k == "a" else x * 3

    return f, f


def through(make: Callable[[], Any]) -> Callable[[], Any]:
    def outer():
        inner, context = make()
        return lambda x: inner(x), context

    return outer


def with_class() -> Any:
    class Base:
        def base(self, x):
            return x * 2

        @property
        def scale(self):
            return 2

        @staticmethod
        def fixed(x):
            return x - 1

        @classmethod
        def made(cls, x):
            return x + 1

    class Derived(Base):
        flag = "a"

        def base(self, x):
            return super().base(x) + 1

        def go(self, x):
            return x * self.scale if self.flag == "a" else x * 5

    made = Derived()
    return lambda x: made.base(made.go(x)) + Derived.fixed(x) + made.made(x), (made, Base, Derived)


def with_module_class() -> Any:
    class Inner(nn.Module):
        flag = "a"

        def helper(self, x):
            return x * 2 if self.flag == "a" else x * 3

        def forward(self, x):
            return self.helper(x)

    module = Inner()
    return module, (module, Inner)


def with_python_module() -> Any:
    module = types.ModuleType("a_module_of_a_test")
    module.factor, module.unread = torch.ones(4), 3
    exec("def g(x): return x * factor", module.__dict__)
    sys.modules[module.__name__] = module
    return lambda x: module.g(x), module


def net() -> Any:
    module = Net()
    return module, module


def reorder(holder: Holder) -> None:
    holder.table["a"] = holder.table.pop("a")


def minus_seven(self: Any, x: Any) -> Any:
    return x - 7


def new_code(f: Any) -> None:
    def other(x, k="a"):
        return x - 5

    f.__code__ = other.__code__


RECOMPILES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "global": (read_global, lambda g: g.update(SCALE=torch.ones(4))),
    "cell": (read_cell, lambda change: change(torch.sigmoid)),
    "attribute": (reading(lambda x, o: x if o.mode == "up" else -x), lambda o: setattr(o, "mode", "down")),
    "class of an object": (reading(lambda x, o: x + o.tensor), lambda o: setattr(o, "__class__", OtherHolder)),
    "list length": (reading(lambda x, o: x + sum(o.items)), lambda o: o.items.append(3.0)),
    "dict order": (reading(in_order), reorder),
    "dict key": (reading(lambda x, o: x if "z" in o.table else -x), lambda o: o.table.update(z=1)),
    "attribute that appears": (reading(lambda x, o: x if hasattr(o, "z") else -x), lambda o: setattr(o, "z", 1)),
    "default of getattr": (reading(lambda x, o: x * getattr(o, "z", 2)), lambda o: setattr(o, "z", torch.ones(4))),
    "set": (reading(lambda x, o: x if 3 in o.chosen else -x), lambda o: o.chosen.add(3)),
    "None": (
        reading(lambda x, o: x if o.maybe is None else x + o.maybe), lambda o: setattr(o, "maybe", torch.ones(4))
    ),
    "tensor's dtype": (reading(lambda x, o: x + o.tensor), lambda o: setattr(o, "tensor", torch.ones(4).double())),
    "defaults": (with_default, lambda f: setattr(f, "__defaults__", ("b",))),
    "keyword defaults": (with_keyword, lambda f: setattr(f, "__kwdefaults__", {"k": "b"})),
    "keyword defaults in place": (with_keyword, lambda f: f.__kwdefaults__.update(k="b")),
    "code": (with_default, new_code),
    "defaults of a callee": (through(with_default), lambda f: setattr(f, "__defaults__", ("b",))),
    "keyword defaults of a callee": (through(with_keyword), lambda f: setattr(f, "__kwdefaults__", {"k": "b"})),
    "code of a callee": (through(with_default), new_code),
    "method": (with_class, lambda c: setattr(c[2], "go", minus_seven)),
    "method of a base class": (with_class, lambda c: setattr(c[1], "base", minus_seven)),
    "property": (with_class, lambda c: setattr(c[1], "scale", property(lambda self: 9))),
    "property hidden by a derived class": (with_class, lambda c: setattr(c[2], "scale", property(lambda self: 9))),
    "static method": (with_class, lambda c: setattr(c[1], "fixed", staticmethod(lambda x: x * 9))),
    "class method": (with_class, lambda c: setattr(c[1], "made", classmethod(minus_seven))),
    "class attribute": (with_class, lambda c: setattr(c[2], "flag", "b")),
    "class attribute hidden by the object": (with_class, lambda c: setattr(c[0], "flag", "b")),
    "method hidden by the object": (with_class, lambda c: setattr(c[0], "go", lambda x: x - 7)),
    "module's method": (with_module_class, lambda c: setattr(c[1], "helper", minus_seven)),
    "module's forward": (with_module_class, lambda c: setattr(c[1], "forward", minus_seven)),
    "module's method hidden": (with_module_class, lambda c: object.__setattr__(c[0], "helper", lambda x: x - 7)),
    "module's class attribute": (with_module_class, lambda c: setattr(c[1], "flag", "b")),
    "eval": (net, lambda m: m.eval()),
    "hook": (net, lambda m: m.inner.register_forward_hook(lambda module, given, result: result * 2)),
    "pre-hook": (net, lambda m: m.register_forward_pre_hook(lambda module, given: (given[0] + 1,))),
    "submodule": (net, lambda m: setattr(m, "inner", nn.Linear(4, 4))),
    "parameter": (net, lambda m: setattr(m.inner, "weight", nn.Parameter(torch.zeros(4, 4)))),
    "requires_grad of a parameter": (net, lambda m: m.inner.weight.requires_grad_(False)),
    "Python module's global": (with_python_module, lambda m: setattr(m, "factor", 3)),
    "Python module's function": (with_python_module, lambda m: setattr(m, "g", lambda x: x - 1)),
}  # fmt: skip

DOES_NOT: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "unread global": (read_global, lambda g: g.update(UNREAD=5)),
    "unread attribute": (reading(lambda x, o: x + o.tensor), lambda o: setattr(o, "other", 9)),
    "new attribute": (reading(lambda x, o: x + o.tensor), lambda o: setattr(o, "brand_new", 9)),
    "equal list": (reading(lambda x, o: x + sum(o.items)), lambda o: setattr(o, "items", [1.0, 2.0])),
    "tensor of equal metadata": (
        reading(lambda x, o: x + o.tensor), lambda o: setattr(o, "tensor", torch.zeros(4))
    ),
    "unread class attribute": (with_class, lambda c: setattr(c[2], "unread", 1)),
    "unread method": (with_class, lambda c: setattr(c[2], "unread", minus_seven)),
    "new values of parameters": (net, lambda m: m.load_state_dict(Net().state_dict())),
    "mode of a submodule that is not called": (net, lambda m: m.drop.eval()),
    "Python module's unread global": (with_python_module, lambda m: setattr(m, "unread", 9)),
}  # fmt: skip


def graphs_before_and_after(row: Any, monkeypatch: Any) -> tuple[int, int]:
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    make, change = row
    fn, context = make()
    graphs: list[Any] = []
    compiled = dovetail.compile(fn, backend=lambda graph, given: graphs.append(graph) or graph.forward)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(X), fn(X))
        before = len(graphs)
        change(context)
        for _ in range(2):
            torch.testing.assert_close(compiled(X), fn(X))
    return before, len(graphs)


@pytest.mark.parametrize("case", RECOMPILES)
def test_recompiles(case: str, monkeypatch: Any) -> None:
    assert graphs_before_and_after(RECOMPILES[case], monkeypatch) == (1, 2)


@pytest.mark.parametrize("case", DOES_NOT)
def test_does_not(case: str, monkeypatch: Any) -> None:
    assert graphs_before_and_after(DOES_NOT[case], monkeypatch) == (1, 1)


class Switched:
    """A process-wide setting for a block."""

    def __init__(self, switch: Callable[[Any], Any], on: Any, off: Any) -> None:
        self.switch, self.on, self.off = switch, on, off

    def __enter__(self) -> None:
        self.switch(self.on)

    def __exit__(self, *error: Any) -> None:
        self.switch(self.off)


MODES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
    "default dtype": lambda: Switched(torch.set_default_dtype, torch.float64, torch.float32),
    "default device": lambda: Switched(torch.set_default_device, "cpu", None),
    "deterministic": lambda: Switched(torch.use_deterministic_algorithms, True, False),
}


@pytest.mark.parametrize("mode", MODES)
def test_modes_recompile(mode: str) -> None:
    graphs: list[Any] = []

    def fn(x):
        return x @ torch.ones(4, 2, dtype=x.dtype) + torch.zeros(2, dtype=x.dtype)

    compiled = dovetail.compile(fn, backend=lambda graph, given: graphs.append(graph) or graph.forward)
    same(compiled(X), fn(X))
    with MODES[mode]():
        for _ in range(2):
            same(compiled(X), fn(X))
    same(compiled(X), fn(X))
    assert len(graphs) == 2


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected)

"""What makes a compiled entry miss, and what does not."""

from __future__ import annotations

import functools
import sys
import types

import pytest
import torch
import torch.nn as nn

from dovetail.capture.driver import capture
from dovetail.guards import build, snapshot
from dovetail.ir.guard import MISS
from tests.capture.harness import OPTIONS, compare

FACTOR = 2
SETTINGS = {"a": 1, "b": 2}
LAYERS = [1, 2]


def scaled(x):
    return x * FACTOR


def entry(fn, *args, **kwargs):
    captured = capture(fn, args, kwargs, OPTIONS)
    return build(captured, fn, captured.graph, snapshot())


def hits(found, fn, *args, **kwargs):
    """The entry fits this call, and gives what eager gives."""
    result = found.call(*args, **kwargs)
    if result is MISS:
        return False
    compare(result, fn(*args, **kwargs))
    return True


def test_tensor_facts():
    found = entry(scaled, torch.ones(3))
    assert hits(found, scaled, torch.zeros(3))
    assert not hits(found, scaled, torch.ones(4))
    assert not hits(found, scaled, torch.ones(3, dtype=torch.float64))
    assert not hits(found, scaled, torch.ones(6)[::2])
    assert not hits(found, scaled, torch.ones(3, requires_grad=True))
    assert not hits(found, scaled, 3.0)


def test_global(monkeypatch):
    found = entry(scaled, torch.ones(3))
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert not hits(found, scaled, torch.ones(3))
    monkeypatch.setitem(globals(), "FACTOR", 2)
    monkeypatch.setitem(globals(), "UNRELATED", 3)
    assert hits(found, scaled, torch.ones(3))


def test_global_containers():
    def read(x):
        return x * SETTINGS["b"] + len(LAYERS)

    found = entry(read, torch.ones(3))
    SETTINGS["a"] = 50
    assert hits(found, read, torch.ones(3))
    LAYERS.append(3)
    assert not hits(found, read, torch.ones(3))
    LAYERS.pop()
    SETTINGS["b"] = 9
    assert not hits(found, read, torch.ones(3))
    SETTINGS["b"] = 2


def test_closure_cell():
    def make(n):
        def inner(x):
            return x + n

        def change(value):
            nonlocal n
            n = value

        return inner, change

    inner, change = make(1)
    found = entry(inner, torch.ones(3))
    change(2)
    assert not hits(found, inner, torch.ones(3))
    change(1)
    assert hits(found, inner, torch.ones(3))


def test_arguments():
    def mixed(x, n, flag=False, *, name="a"):
        return x * n if flag else (x, name)

    found = entry(mixed, torch.ones(3), 2)
    assert hits(found, mixed, torch.ones(3), 2)
    assert hits(found, mixed, torch.ones(3), n=2, flag=False)
    assert not hits(found, mixed, torch.ones(3), 2, True)
    assert hits(found, mixed, torch.ones(3), 2, name="b")  # handed on, never looked at


def test_same_tensor_twice():
    def both(x, y):
        x.add_(1)
        return x + y, x is y

    a, b = torch.ones(3), torch.ones(3)
    same, apart = entry(both, a, a), entry(both, a, b)
    assert same.call(a, b) is MISS and apart.call(a, a) is MISS
    assert same.call(a, a)[1] is True and apart.call(a, b)[1] is False


def test_containers_as_arguments():
    def total(d, xs):
        return d["a"] + sum(xs)

    d, xs = {"a": torch.ones(3), "b": 1}, [torch.ones(3), torch.zeros(3)]
    found = entry(total, d, xs)
    assert hits(found, total, {"a": torch.ones(3), "b": 5}, [torch.ones(3), torch.zeros(3)])
    assert not hits(found, total, d, xs[:1])
    assert hits(found, total, {"b": 1, "a": torch.ones(3)}, xs)
    assert not hits(found, total, {"b": 1, "a": 2.0}, xs)
    assert not hits(found, total, {"b": 1}, xs)
    assert not hits(found, total, d, tuple(xs))


def test_the_order_of_keys_where_it_is_looked_at():
    def joined(d):
        return torch.stack([*d.values()])

    found = entry(joined, {"a": torch.ones(3), "b": torch.zeros(3)})
    assert hits(found, joined, {"a": torch.zeros(3), "b": torch.ones(3)})
    assert not hits(found, joined, {"b": torch.zeros(3), "a": torch.ones(3)})


class Registry(dict):
    def get(self, key, default=0):
        return super().get(str(key), default)


@pytest.mark.parametrize("kind", [dict, Registry])
def test_a_registry_may_grow(kind):
    registry = kind(scale=2.0)

    def scaled(x):
        return x * registry["scale"] + registry.get("shift", 0) + ("shift" in registry)

    found = entry(scaled, torch.ones(3))
    registry["other"] = 3
    assert hits(found, scaled, torch.ones(3))
    registry["shift"] = 1
    assert not hits(found, scaled, torch.ones(3))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)
        self.scale = 2
        self.unread = 0

    def forward(self, x):
        return self.drop(self.linear(x)) * self.scale


def test_module_changes():
    net, x = Net().eval(), torch.ones(2, 3)
    with torch.no_grad():
        found = entry(net, x)
        assert hits(found, net, x)
        net.unread = 5
        assert hits(found, net, x)
        net.linear.weight.add_(1)
        assert hits(found, net, x)
        net.scale = 3
        assert found.call(x) is MISS
        net.scale = 2
        net.drop.train()
        assert found.call(x) is MISS
        net.drop.eval()
        handle = net.linear.register_forward_hook(lambda m, a, out: out + 1)
        assert found.call(x) is MISS
        handle.remove()
        assert hits(found, net, x)
        net.linear.weight = nn.Parameter(torch.ones(3, 3))
        assert found.call(x) is MISS


def test_process_state():
    x = torch.ones(3)
    with torch.no_grad():
        found = entry(scaled, x)
    assert found.call(x) is MISS
    with torch.no_grad():
        assert hits(found, scaled, x)
        with torch.autocast("cpu"):
            assert found.call(x) is MISS


def test_guards_are_few():
    def many(x):
        for _ in range(50):
            x = x * FACTOR + SETTINGS["b"]
        return x

    captured = capture(many, (torch.ones(3),), {}, OPTIONS)
    assert len(captured.guards) <= 11, [(g.kind, g.source) for g in captured.guards]
    assert all(g.user_line == "" or ":" in g.user_line for g in captured.guards)


SWITCHES = {
    "threads": (torch.get_num_threads, torch.set_num_threads, 3),
    "matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high"),
    "warn only": (
        torch.is_deterministic_algorithms_warn_only_enabled,
        lambda on: torch.use_deterministic_algorithms(False, warn_only=on), True,
    ),
    "autocast cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False),
    "forward gradients": (torch._C._is_fwd_grad_enabled, torch._C._set_fwd_grad_enabled, False),
    "cudnn": (torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled, False),
    "cudnn.enabled": (lambda: torch.backends.cudnn.enabled, torch._C._set_cudnn_enabled, False),
    "cudnn.benchmark": (lambda: torch.backends.cudnn.benchmark, torch._C._set_cudnn_benchmark, True),
    "cudnn.deterministic": (lambda: torch.backends.cudnn.deterministic, torch._C._set_cudnn_deterministic, True),
    "cudnn.allow_tf32": (lambda: torch.backends.cudnn.allow_tf32, torch._C._set_cudnn_allow_tf32, False),
    "mkldnn.enabled": (lambda: torch.backends.mkldnn.enabled, torch._C._set_mkldnn_enabled, False),
}  # fmt: skip


@pytest.mark.parametrize("read, write, other", SWITCHES.values(), ids=SWITCHES)
def test_settings_that_a_program_asks_for(read, write, other):
    fn, before = lambda x: (x + 1, read()), read()
    found = entry(fn, torch.ones(3))
    assert hits(found, fn, torch.ones(3))
    try:
        write(other)
        assert read() == other != before
        assert not hits(found, fn, torch.ones(3))
        assert hits(entry(fn, torch.ones(3)), fn, torch.ones(3))
    finally:
        write(before)
    assert hits(found, fn, torch.ones(3))


def test_what_a_module_computes(monkeypatch):
    """A module whose class has properties, and what one under it would be without."""

    class Settings(types.ModuleType):
        level = property(lambda self: self.__dict__["held"])

    module = Settings("settings_of_a_test")
    module.held = 2
    monkeypatch.setitem(sys.modules, module.__name__, module)
    fn = lambda x: x * module.level
    found = entry(fn, torch.ones(3))
    assert hits(found, fn, torch.ones(3))
    module.held = 3
    assert not hits(found, fn, torch.ones(3))


def test_what_is_behind_a_mapping_proxy():
    table = {"a": 1}
    shown = types.MappingProxyType(table)

    class Own:
        k = 2

    def f(x):
        return x * shown["a"] + Own.__dict__["k"]

    found = entry(f, torch.ones(3))
    assert hits(found, f, torch.ones(3))
    table["a"] = 3
    assert not hits(found, f, torch.ones(3))
    found = entry(f, torch.ones(3))
    Own.k = 5
    assert not hits(found, f, torch.ones(3))


def test_another_cache():
    caches = [functools.lru_cache(lambda n: n * 2), functools.lru_cache(lambda n: n * 3)]

    def f(x):
        return x * caches[0](3)

    found = entry(f, torch.ones(3))
    assert hits(found, f, torch.ones(3))
    caches.reverse()
    assert not hits(found, f, torch.ones(3))


@pytest.mark.parametrize("value", [7, nn.Parameter(torch.ones(3)), nn.Identity()])
def test_an_attribute_that_a_module_did_not_have(value):
    class Own(nn.Module):
        def forward(self, x):
            return x * 2 if getattr(self, "k", None) is None else x * 3

    module = Own()
    found = entry(module, torch.ones(3))
    assert hits(found, module, torch.ones(3))
    module.other = 3
    assert hits(found, module, torch.ones(3))
    module.k = value
    assert not hits(found, module, torch.ones(3))


def test_a_metaclass_is_asked_once():
    asked = []

    class Meta(type):
        def __instancecheck__(cls, instance):
            asked.append(instance)
            return isinstance(instance, int)

    class Number(metaclass=Meta):
        pass

    def shifted(x):
        return x + 1 if isinstance(3, Number) else x

    entry(shifted, torch.ones(2))
    assert asked == [3]

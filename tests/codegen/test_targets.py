"""A device is a plug: a third target, which has the reference evaluator compute its kernels, runs programs."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest
import torch

import dovetail
from dovetail import targets
from dovetail.ir import devices
from dovetail.ir.evaluate import _GroupRun
from dovetail.ir.kernel import Kernel
from dovetail.ir.liveness import reads, writes
from dovetail.ir.memory import Memory
from dovetail.ir.text import group_text
from dovetail.options import Options


class Evaluated:
    """Kernels are the text of their group, for sizes that are known. `ran` are the names of those that were called."""

    def __init__(self):
        self.groups, self.ran = {}, []

    def unavailable(self, device):
        return ""

    def generate(self, group, options, many=False):
        buffers = {b.name: b for b in (*reads(group).values(), *writes(group).values())}
        self.groups[group.name] = group
        return Kernel(group.name, group_text(group), tuple(buffers.values()), ())

    def begin(self, kernels, device, more):
        self.begun = device

    def load(self, kernels, device, meanwhile):
        return {k.symbol: self.callable(k) for k in kernels}

    def callable(self, kernel):
        def call(*addresses):
            memories = {b.name: memory(b, address) for b, address in zip(kernel.pointers, addresses, strict=True)}
            machine = SimpleNamespace(size=int, shape=shape, memories=memories, sizes={}, numbers={})
            _GroupRun(machine, self.groups[kernel.symbol]).run()
            self.ran.append(kernel.symbol)
            return 0

        return call

    def blobs(self, kernels, device, store):
        return {}


def shape(buffer):
    return [*buffer.sizes], [*buffer.strides], buffer.offset


def memory(buffer, address):
    """The bytes there, as the evaluator takes them."""
    found = (ctypes.c_uint8 * max(buffer.span * buffer.dtype.itemsize, 1)).from_address(address)
    return Memory(torch.frombuffer(found, dtype=torch.uint8).untyped_storage(), 0, buffer.device)


@pytest.fixture
def evaluated(monkeypatch):
    made = Evaluated()
    monkeypatch.setitem(targets.TARGETS, devices.HOST.type, made)
    yield made
    dovetail.reset()


def test_inference(evaluated):
    def f(x, y):
        return (x.sin() * y).sum(-1), x[1:] + 1

    x, y = torch.randn(5, 7), torch.randn(7)
    for result, expected in zip(dovetail.compile(f, fullgraph=True)(x, y), f(x, y), strict=True):
        torch.testing.assert_close(result, expected)
    assert evaluated.ran and evaluated.begun == x.device


def test_training(evaluated):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))
    x = torch.randn(5, 3)
    model(x).square().mean().backward()
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    dovetail.compile(model, fullgraph=True, dynamic=False)(x).square().mean().backward()
    for p, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, gradient)
    assert evaluated.ran


def test_a_device_that_nobody_plugged_in():
    assert targets.unavailable(torch.device("meta")) == "kernels exist for cpu and cuda, not for meta"
    assert devices.traits(torch.device("meta")) == devices.Traits()


def test_groups_are_the_devices_that_are_not_the_host(monkeypatch):
    """A number that the host holds may be read there."""
    made = []
    for name in targets.TARGETS:
        target = SimpleNamespace(generate=lambda group, options, many, name=name: made.append(name))
        monkeypatch.setitem(targets.TARGETS, name, target)
    buffers = {name: SimpleNamespace(device=torch.device(name)) for name in ("cpu", "cuda")}
    for read in ({}, {"a": buffers["cpu"]}, buffers, {"b": buffers["cuda"]}):
        monkeypatch.setattr(targets, "reads", lambda group, read=read: read)
        monkeypatch.setattr(targets, "writes", lambda group: {})
        targets.generate(SimpleNamespace(), Options())
    assert made == ["cpu", "cpu", "cuda", "cuda"]

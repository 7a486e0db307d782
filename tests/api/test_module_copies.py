"""A compiled module is its class, shares its state, and survives copying and pickling."""

from __future__ import annotations

import copy
import io
import pickle
import weakref

import pytest
import torch
from torch import nn

import dovetail


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.register_buffer("k", torch.tensor(2.0))

    def forward(self, x):
        return self.fc(x) * self.k

    def twice(self, x):
        return self(self(x))


X = torch.randn(2, 3)
pytestmark = pytest.mark.usefixtures("_no_grad")


@pytest.fixture
def _no_grad():
    with torch.no_grad():
        yield


def pair() -> tuple[Net, Net]:
    net = Net().eval()
    return net, dovetail.compile(net, backend="eager", fullgraph=True)


def entries(c) -> int:
    return len(c._dovetail_dispatcher.entries)


def test_class_and_names() -> None:
    net, c = pair()
    assert isinstance(c, Net) and type(c) is not Net and type(c).__name__ == "Net" and c._orig_mod is net
    assert type(dovetail.compile(Net())) is type(c)
    assert repr(c).startswith("CompiledNet(") and "(fc): Linear" in repr(c)
    assert c.__dict__ is net.__dict__ and not [k for k in net.__dict__ if "dovetail" in k or "orig" in k]


def test_methods_of_the_class_use_the_compiled_call() -> None:
    net, c = pair()
    torch.testing.assert_close(c.twice(X), net.twice(X))
    assert entries(c) == 1


def test_state_dict_and_hooks() -> None:
    net, c = pair()
    assert list(c.state_dict()) == ["k", "fc.weight", "fc.bias"]
    seen = []
    handle = c.register_forward_hook(lambda m, a, out: seen.append(type(m)))
    c(X)
    assert seen == [Net] and len(net._forward_hooks) == 1
    handle.remove()
    c(X)
    assert seen == [Net]


def test_as_a_child() -> None:
    net, c = pair()
    parent = nn.Sequential(c, nn.ReLU())
    assert list(parent.state_dict()) == ["0.k", "0.fc.weight", "0.fc.bias"]
    parent.train()
    assert net.training
    parent.eval().double()
    assert net.fc.weight.dtype == torch.float64
    torch.testing.assert_close(parent(X.double()), net(X.double()).relu())
    whole = dovetail.compile(parent, backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(X.double()), net(X.double()).relu())


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies_are_compiled_and_independent(how: str) -> None:
    net, c = pair()
    want = c(X)
    if how == "deepcopy":
        other = copy.deepcopy(c)
    elif how == "pickle":
        other = pickle.loads(pickle.dumps(c))
    else:
        file = io.BytesIO()
        torch.save(c, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    assert type(other) is type(c) and entries(other) == 0 and other._orig_mod is not net
    torch.testing.assert_close(other(X), want)
    assert entries(other) == 1
    other.fc.weight.zero_()
    torch.testing.assert_close(c(X), want)
    assert not torch.equal(other(X), want)


def test_shallow_copy_shares_tensors() -> None:
    net, c = pair()
    other = copy.copy(c)
    assert other.fc is net.fc and type(other) is type(c) and other._dovetail_dispatcher is not c._dovetail_dispatcher
    torch.testing.assert_close(other(X), net(X))


def test_a_deep_copy_inside_a_parent_keeps_sharing() -> None:
    net, c = pair()
    both = nn.ModuleList([c, net])
    twin = copy.deepcopy(both)
    assert twin[0]._orig_mod is twin[1] and twin[0].fc is twin[1].fc


def test_it_can_be_collected() -> None:
    net, c = pair()
    c(X)
    dead = weakref.ref(net.fc.weight)
    del net, c
    import gc

    gc.collect()
    assert dead() is None


def test_training_flag_recompiles_once_each() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).eval()
    c = dovetail.compile(net, backend="eager")
    c(X)
    c.train()
    c(X)
    c.eval()
    torch.testing.assert_close(c(X), net(X))
    assert entries(c) == 2


def test_subclass_with_slots_and_own_call() -> None:
    class Own(Net):
        def __call__(self, x):
            return super().__call__(x) + 1

    net = Own().eval()
    torch.testing.assert_close(dovetail.compile(net, backend="eager")(X), net(X))

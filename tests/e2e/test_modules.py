"""A compiled module is still the module: class, state, hooks, copies."""

from __future__ import annotations

import copy
import io
import pickle

import torch
from torch import nn

import dovetail


class Net(nn.Module):
    """Has parameters, buffers, children and a plain attribute."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 4))
        self.norm = nn.BatchNorm1d(4)
        self.scale = 2.0

    def forward(self, x, flag=False):
        x = self.norm(self.body(x)) * self.scale
        return x.relu() if flag else x

    def extra(self, x):
        return x + self.scale


def pair() -> tuple[nn.Module, nn.Module]:
    net = Net().eval()
    return net, dovetail.compile(net)


X = torch.randn(3, 4)


@torch.no_grad()
def test_it_is_an_instance_of_its_class() -> None:
    net, compiled = pair()
    assert isinstance(compiled, Net) and isinstance(compiled, nn.Module)
    torch.testing.assert_close(compiled(X), net(X))
    torch.testing.assert_close(compiled(X, flag=True), net(X, flag=True))


@torch.no_grad()
def test_state_is_shared() -> None:
    net, compiled = pair()
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert [n for n, _ in compiled.named_modules()] == [n for n, _ in net.named_modules()]
    assert all(a is b for a, b in zip(compiled.parameters(), net.parameters(), strict=True))
    before = compiled(X)
    compiled.load_state_dict({k: v + 0.25 if v.is_floating_point() else v for k, v in net.state_dict().items()})
    torch.testing.assert_close(compiled(X), net(X))
    assert not torch.allclose(compiled(X), before)


@torch.no_grad()
def test_attributes_written_on_either_show_on_both() -> None:
    net, compiled = pair()
    compiled(X)
    net.scale = 5.0
    torch.testing.assert_close(compiled(X), net(X))
    compiled.scale = -1.0
    assert net.scale == -1.0
    torch.testing.assert_close(compiled(X), net(X))
    torch.testing.assert_close(compiled.extra(X), X - 1.0)


@torch.no_grad()
def test_replacing_a_parameter_or_a_child_is_noticed() -> None:
    net, compiled = pair()
    compiled(X)
    net.body[0].weight = nn.Parameter(torch.randn(8, 4))
    torch.testing.assert_close(compiled(X), net(X))
    net.body[3] = nn.Linear(8, 4)
    torch.testing.assert_close(compiled(X), net(X))


@torch.no_grad()
def test_changing_a_parameter_in_place_is_noticed() -> None:
    net, compiled = pair()
    compiled(X)
    net.body[0].weight.mul_(3)
    net.norm.running_mean.add_(1)
    torch.testing.assert_close(compiled(X), net(X))


@torch.no_grad()
def test_training_mode_is_shared_and_noticed() -> None:
    net, compiled = pair()
    first = compiled(X)
    compiled.train()
    assert net.training and net.body[2].training
    compiled.eval()
    assert not net.training
    torch.testing.assert_close(compiled(X), first)


@torch.no_grad()
def test_forward_hooks_run_once() -> None:
    net, compiled = pair()
    calls = []
    net.register_forward_pre_hook(lambda m, args: calls.append("before"))
    compiled.register_forward_hook(lambda m, args, out: calls.append("after"))
    torch.testing.assert_close(compiled(X), net(X))
    assert calls == ["before", "after"] * 2


@torch.no_grad()
def test_a_hook_that_changes_the_result() -> None:
    net, compiled = pair()
    compiled(X)
    handle = net.norm.register_forward_hook(lambda m, args, out: out + 100)
    assert compiled(X).min() > 50
    torch.testing.assert_close(compiled(X), net(X))
    handle.remove()
    torch.testing.assert_close(compiled(X), net(X))
    assert compiled(X).min() < 50


@torch.no_grad()
def test_deep_copies_are_independent() -> None:
    _, compiled = pair()
    want = compiled(X)
    other = copy.deepcopy(compiled)
    other.scale = 7.0
    torch.testing.assert_close(compiled(X), want)
    torch.testing.assert_close(other(X), want * 3.5)
    assert isinstance(other, Net)


@torch.no_grad()
def test_pickling() -> None:
    _, compiled = pair()
    want = compiled(X)
    other = pickle.loads(pickle.dumps(compiled))
    assert isinstance(other, Net)
    torch.testing.assert_close(other(X), want)


@torch.no_grad()
def test_saving_and_loading() -> None:
    _, compiled = pair()
    file = io.BytesIO()
    torch.save(compiled.state_dict(), file)
    file.seek(0)
    fresh = Net().eval()
    fresh.load_state_dict(torch.load(file))
    torch.testing.assert_close(compiled(X), fresh(X))


@torch.no_grad()
def test_compiling_does_not_touch_the_original() -> None:
    net = Net().eval()
    names, kind = set(vars(net)), type(net)
    dovetail.compile(net)(X)
    assert set(vars(net)) == names and type(net) is kind


@torch.no_grad()
def test_containers_and_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 4)
            self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})
            self.out = nn.Linear(4, 10, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, ids):
            x = self.embed(ids)
            for i, block in enumerate(self.blocks):
                x = x + block(x) / (i + 1)
            return {name: head(x) for name, head in self.heads.items()} | {"out": self.out(x)}

    net = Tied().eval()
    ids = torch.tensor([[1, 2, 9]])
    torch.testing.assert_close(dovetail.compile(net, fullgraph=True)(ids), net(ids))

"""nn.Module from every side: hooks, containers, registration, copies, parametrizations, functional calls."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.utils.parametrize as parametrize
from torch import nn
from torch.func import functional_call
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, parametrizations, prune, stateless
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import dovetail
from tests.capture.whole import breaks, whole


class Model(nn.Module):
    """`setup(model)` after construction, `run(model, x)` as forward."""

    def __init__(self, run, setup=None):
        super().__init__()
        self.line, self.act, self.norm = nn.Linear(4, 4), nn.ReLU(), nn.BatchNorm1d(4)
        self.register_buffer("mean", torch.zeros(4))
        self.items = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.named = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ReLU()})
        self.rows = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(3)])
        self.table = nn.ParameterDict({"u": nn.Parameter(torch.randn(4)), "v": nn.Parameter(torch.randn(4))})
        self.stack = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.count = 0
        self.run = run
        if setup is not None:
            setup(self)

    def forward(self, x):
        return self.run(self, x)


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


def x():
    return torch.randn(3, 4)


def ones_as_grads(model):
    for p in model.parameters():
        p.grad = torch.ones_like(p)


def moving_mean(m, x):
    with torch.no_grad():
        m.mean = 0.9 * m.mean + 0.1 * x.mean(0)
        m.count += 1
    return m.line(x) - m.mean


def cached(m, x):
    with parametrize.cached():
        return m.line(x) + m.line(x)


def rescaled(m, x):
    with torch.no_grad():
        m.line.weight.mul_(0.5)
    return m.line(x)


def doubled_call(m, x):
    return functional_call(m.stack, {n: p * 2 for n, p in m.stack.named_parameters()}, (x,))


def doubled_forward(m):
    inner = m.line.forward
    m.line.forward = lambda x: inner(x) * 2


SYMMETRIC = lambda m: parametrize.register_parametrization(m.line, "weight", Symmetric())

WHOLE = {
    # hooks
    "forward hook": (lambda m, x: m.line(x), lambda m: m.line.register_forward_hook(lambda _, i, o: o * 2)),
    "forward hook, nothing": (lambda m, x: m.line(x), lambda m: m.line.register_forward_hook(lambda _, i, o: None)),
    "forward hook, keywords": (
        lambda m, x: m.line(input=x),
        lambda m: m.line.register_forward_hook(lambda _, a, k, o: o + k["input"], with_kwargs=True),
    ),
    "forward hook, always": (
        lambda m, x: m.line(x), lambda m: m.line.register_forward_hook(lambda _, i, o: o * 2, always_call=True),
    ),
    "pre-hook": (lambda m, x: m.line(x), lambda m: m.line.register_forward_pre_hook(lambda _, i: (i[0] * 2,))),
    "pre-hook, no tuple": (lambda m, x: m.line(x), lambda m: m.line.register_forward_pre_hook(lambda _, i: i[0] * 2)),
    "pre-hook, keywords": (
        lambda m, x: m.line(x),
        lambda m: m.line.register_forward_pre_hook(lambda _, a, k: ((a[0] * 2,), k), with_kwargs=True),
    ),
    "hook of the whole": (lambda m, x: m.line(x), lambda m: m.register_forward_hook(lambda _, i, o: o * 2)),
    "forward replaced": (lambda m, x: m.line(x), doubled_forward),
    # containers
    "list": (lambda m, x: [layer(x) * k for k, layer in enumerate(m.items)], None),
    "list slices": (lambda m, x: [layer(x) for layer in (*m.items[1:], *m.items[::-1], m.items[-1])], None),
    "list protocol": (lambda m, x: (len(m.items), m.items[0] in m.items, m.line in m.items, bool(m.items)), None),
    "list sum": (lambda m, x: [layer(x) for layer in m.items + m.items], None),
    "list append": (lambda m, x: (m.items.append(m.line), [layer(x) for layer in m.items])[1], None),
    "list item": (lambda m, x: (m.items.__setitem__(0, m.line), m.items[0](x))[1], None),
    "dict": (lambda m, x: {k: layer(x) for k, layer in m.named.items()}, None),
    "dict protocol": (lambda m, x: (list(m.named), len(m.named), "a" in m.named, m.named["a"](x), m.named.a(x)), None),
    "dict update": (lambda m, x: (m.named.update({"c": nn.GELU()}), m.named["c"](x))[1], None),
    "parameters": (lambda m, x: [p * x for p in m.rows] + [m.rows[0] + m.rows[-1], torch.stack([*m.rows])], None),
    "parameter slices": (lambda m, x: [p * 2 for p in m.rows[1:]], None),
    "parameter dict": (lambda m, x: ({k: p * x for k, p in m.table.items()}, "u" in m.table, m.table.v), None),
    "sequential": (lambda m, x: (m.stack(x), m.stack[:2](x), m.stack[-1](x), len(m.stack)), None),
    "sequential append": (lambda m, x: (m.stack.append(nn.ReLU()), m.stack(x))[1], None),
    "sequential made": (lambda m, x: nn.Sequential(m.line, m.act)(x), None),
    # looking through
    "named parameters": (lambda m, x: {n: p * 2 for n, p in m.named_parameters()}, None),
    "weight decay": (lambda m, x: m.line(x).sum() + sum((p**2).sum() for p in m.parameters()), None),
    "named modules": (lambda m, x: [n for n, c in m.named_modules() if isinstance(c, nn.Linear)], None),
    "children": (lambda m, x: [type(c).__name__ for c in m.children()], None),
    "state dict": (lambda m, x: (list(m.state_dict()), m.line.state_dict()["weight"] * 2), None),
    "by path": (lambda m, x: m.get_submodule("stack.0")(x) @ m.get_parameter("line.weight"), None),
    "buffers": (lambda m, x: {n: b + 1 for n, b in m.named_buffers()}, None),
    # state
    "train and eval": (lambda m, x: (m.norm.eval()(x), m.norm.train()(x)), None),
    "requires_grad_": (lambda m, x: (m.line.requires_grad_(False), m.line(x) + m.rows[0])[1], None),
    "zero_grad": (lambda m, x: (m.zero_grad(), m.line(x))[1], ones_as_grads),
    "zero_grad to zero": (lambda m, x: (m.zero_grad(set_to_none=False), m.line(x))[1], ones_as_grads),
    "to where it is": (lambda m, x: m.to(x.device).line(x), None),
    "buffer assigned": (moving_mean, None),
    "buffer in place": (lambda m, x: m.mean.mul_(0.9).add_(x.mean(0), alpha=0.1) * x, None),
    "weight in place": (rescaled, None),
    "attributes": (lambda m, x: (setattr(m, "kept", x * 2), m.kept + 1, hasattr(m, "absent"))[1:], None),
    "attribute deleted": (lambda m, x: (delattr(m, "count"), x)[1] if hasattr(m, "count") else -x, None),
    "gradients": (lambda m, x: torch.stack([p.grad.norm() for p in m.parameters()]).norm(), ones_as_grads),
    "clipping": (lambda m, x: clip_grad_norm_(m.parameters(), 1.0), ones_as_grads),
    # registration
    "module made": (lambda m, x: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4))(x), None),
    "norm made": (lambda m, x: nn.BatchNorm1d(4)(x), None),
    "loss made": (lambda m, x: nn.CrossEntropyLoss()(m.line(x), torch.tensor([0, 1, 2])), None),
    "parameter made": (lambda m, x: nn.Parameter(torch.ones(4)) * x, None),
    "parameter of data": (lambda m, x: nn.Parameter(x.detach()), None),
    "parameter assigned": (lambda m, x: (setattr(m, "new", nn.Parameter(torch.ones(4))), m.new + x)[1], None),
    "register_parameter": (lambda m, x: (m.register_parameter("new", nn.Parameter(x.detach())), m.new * x)[1], None),
    "register_buffer": (lambda m, x: (m.register_buffer("new", x * 2), m.new + 1)[1], None),
    "module assigned": (lambda m, x: (setattr(m, "new", nn.Linear(4, 4)), m.new(x))[1], None),
    "module swapped": (lambda m, x: (setattr(m, "line", m.items[0]), m.line(x))[1], None),
    "add_module": (lambda m, x: (m.add_module("new", m.line), m.new(x))[1], None),
    "tied": (lambda m, x: m.items[0](x) + m.items[1](x), lambda m: setattr(m.items[0], "weight", m.items[1].weight)),
    "tied inside": (lambda m, x: (setattr(m.items[0], "weight", m.items[1].weight), m.items[0](x))[1], None),
    "deepcopy": (lambda m, x: copy.deepcopy(m.line)(x), None),
    "deepcopy of tensors": (lambda m, x: copy.deepcopy([m.rows[0], x, x])[1:], None),
    "load_state_dict": (lambda m, x: (m.line.load_state_dict(m.items[0].state_dict()), m.line(x))[1], None),
    # transformed weights
    "weight_norm": (lambda m, x: m.line(x), lambda m: torch.nn.utils.weight_norm(m.line)),
    "parametrized weight_norm": (lambda m, x: m.line(x), lambda m: parametrizations.weight_norm(m.line)),
    "spectral_norm": (lambda m, x: m.line(x), lambda m: torch.nn.utils.spectral_norm(m.line)),
    "parametrized spectral_norm": (lambda m, x: m.line(x), lambda m: parametrizations.spectral_norm(m.line)),
    "orthogonal": (lambda m, x: m.line(x), lambda m: parametrizations.orthogonal(m.line)),
    "parametrization": (lambda m, x: m.line(x), SYMMETRIC),
    "parametrization cached": (cached, SYMMETRIC),
    "prune": (lambda m, x: m.line(x), lambda m: prune.l1_unstructured(m.line, "weight", 0.5)),
    "functional_call": (doubled_call, None),
    "stateless": (lambda m, x: stateless.functional_call(m.line, {"bias": x[0]}, x), None),
    "parameters_to_vector": (lambda m, x: parameters_to_vector(m.line.parameters()), None),
    "fused": (lambda m, x: nn.utils.fusion.fuse_linear_bn_eval(m.line.eval(), m.norm.eval())(x), None),
}  # fmt: skip

BREAKS = {
    "script-code": lambda m: object.__setattr__(m, "made", torch.jit.script(nn.Linear(4, 4))),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole(name):
    run, setup = WHOLE[name]
    whole(lambda m, x: m(x), lambda: Model(run, setup), x)


@pytest.mark.parametrize("code", BREAKS)
def test_breaks(code):
    breaks(code, lambda m, x: m.made(x) * 2, lambda: Model(None, BREAKS[code]), x)


LEAVES = ("parameter made", "parameter of data", "module made", "requires_grad_", "register_parameter", "deepcopy")


@pytest.mark.parametrize("name", LEAVES)
def test_leaves_made_inside_survive_the_default_backend(name):
    run, setup = WHOLE[name]
    whole(lambda m, x: m(x), lambda: Model(run, setup), x, backend="dovetail")


def test_the_grad_mode_that_the_code_leaves_behind():
    def leave(x):
        torch.set_grad_enabled(False)
        return x * 2

    compiled = dovetail.compile(leave, fullgraph=True)
    for _ in range(2):
        with torch.enable_grad():
            assert not compiled(torch.ones(2)).requires_grad and not torch.is_grad_enabled()


def test_a_hook_added_after_compiling_is_called():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = dovetail.compile(lambda x: model(x), backend="eager", fullgraph=True)
    value = torch.ones(2, 4)
    assert torch.equal(compiled(value), model(value))
    hook = model[0].register_forward_hook(lambda _, i, o: o * 3)
    assert torch.equal(compiled(value), model(value))
    hook.remove()
    assert torch.equal(compiled(value), model(value))


def packed(layer, x, lengths):
    outputs, _ = layer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    return pad_packed_sequence(outputs, batch_first=True)[0]


def test_packed_sequences():
    made = lambda: nn.GRU(4, 5, batch_first=True)
    breaks("no-shape-rule", packed, made, lambda: torch.randn(3, 6, 4), lambda: torch.tensor([6, 2, 4]))

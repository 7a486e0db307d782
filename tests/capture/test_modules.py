"""nn.Modules: layers, containers, hooks, vision models."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dovetail
from dovetail.capture.driver import capture
from dovetail.guards import build, snapshot
from tests.capture.harness import OPTIONS, check, compare, enter

LAYERS = {
    "linear": (lambda: nn.Linear(8, 4), (2, 8)),
    "bilinear_free": (lambda: nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(inplace=True)), (2, 8)),
    "conv": (lambda: nn.Conv2d(3, 4, 3, padding=1, stride=2), (2, 3, 8, 8)),
    "conv_same": (lambda: nn.Conv2d(3, 4, 3, padding="same", padding_mode="reflect"), (2, 3, 8, 8)),
    "conv_transposed": (lambda: nn.ConvTranspose2d(3, 4, 3), (2, 3, 8, 8)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3), (2, 3, 8)),
    "batch_norm": (lambda: nn.BatchNorm2d(3), (2, 3, 8, 8)),
    "layer_norm": (lambda: nn.LayerNorm(8), (2, 8)),
    "group_norm": (lambda: nn.GroupNorm(2, 4), (2, 4, 8)),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 8, 8)),
    "rms_norm": (lambda: nn.RMSNorm(8), (2, 8)),
    "pools": (
        lambda: nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten()),
        (2, 3, 8, 8),
    ),
    "activations": (
        lambda: nn.Sequential(
            nn.GELU(), nn.SiLU(), nn.ELU(), nn.Tanh(), nn.Sigmoid(), nn.Hardswish(), nn.LeakyReLU(0.1), nn.PReLU(),
            nn.Softplus(), nn.Mish(), nn.ReLU6(), nn.Softmax(-1), nn.LogSoftmax(dim=1),
        ),
        (2, 8),
    ),
    "dropouts": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(0.2), nn.Identity()), (2, 3, 4, 4)),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="nearest"), (2, 3, 4, 4)),
    "attention": (lambda: SelfAttention(), (2, 5, 8)),
    "encoder_layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2), (5, 2, 8)),
    "module_list": (lambda: Listed(), (2, 8)),
    "module_dict": (lambda: Named(), (2, 8)),
    "parameter_list": (lambda: Parameters(), (2, 8)),
    "pixel_shuffle": (lambda: nn.Sequential(nn.ZeroPad2d(1), nn.Conv2d(3, 8, 3), nn.PixelShuffle(2)), (1, 3, 4, 4)),
    "dense_net": (lambda: DenseNet(), (2, 3, 32, 32)),
    "res_net": (lambda: ResNet(), (2, 3, 16, 16)),
    "unet": (lambda: UNet(), (1, 3, 16, 16)),
    "shared": (lambda: Shared(), (2, 8)),
    "own_call": (lambda: OwnCall(), (2, 8)),
    "own_getattr": (lambda: OwnGetattr(), (2, 8)),
}


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=True)


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        for layer in self.layers[1:3]:
            x = layer(x)
        return self.layers[-1](x) * len(self.layers)


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.ReLU()})

    def forward(self, x):
        out = {name: part(x) for name, part in self.parts.items()}
        return out, self.parts["a"](x), "b" in self.parts


class Parameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(8)) for _ in range(2)])
        self.register_buffer("scale", torch.tensor(2.0))
        self.register_parameter("missing", None)
        self.offset = torch.ones(8)

    def forward(self, x):
        for w in self.weights:
            x = x * w
        assert self.missing is None
        count = sum(p.numel() for p in self.parameters())
        return x * self.scale + self.offset, count, [n for n, _ in self.named_buffers()]


class DenseLayer(nn.Sequential):
    def __init__(self, channels, growth):
        super().__init__()
        self.add_module("norm1", nn.BatchNorm2d(channels))
        self.add_module("conv1", nn.Conv2d(channels, growth, 3, padding=1, bias=False))

    def forward(self, x):
        if isinstance(x, torch.Tensor):
            x = [x]
        x = torch.cat(x, 1)
        return self.conv1(F.relu(self.norm1(x), inplace=True))


class DenseBlock(nn.ModuleDict):
    def __init__(self, channels, growth, count):
        super().__init__()
        for i in range(count):
            self.add_module(f"layer{i}", DenseLayer(channels + i * growth, growth))

    def forward(self, x):
        features = [x]
        for name, layer in self.items():
            features.append(layer(features))
        return torch.cat(features, 1)


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 7, stride=2, padding=3), nn.BatchNorm2d(8), nn.MaxPool2d(3, 2, 1))
        self.features.add_module("block", DenseBlock(8, 4, 3))
        self.classifier = nn.Linear(20, 10)

    def forward(self, x):
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(F.relu(self.features(x), inplace=True), (1, 1)), 1))


class ResBlock(nn.Module):
    expansion = 1

    def __init__(self, a, b, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
        self.conv2, self.bn2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(nn.Conv2d(a, b, 1, stride), nn.BatchNorm2d(b)) if stride != 1 else None

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out) * self.expansion


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(ResBlock(3, 8, 2), ResBlock(8, 8, 1), ResBlock(8, 16, 2))
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc(self.stages(x).mean([2, 3]))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)])
        self.up = nn.ModuleList([nn.Conv2d(24, 8, 3, padding=1), nn.Conv2d(11, 3, 3, padding=1)])

    def forward(self, x):
        skips = []
        for conv in self.down:
            skips.append(x)
            x = F.max_pool2d(F.relu(conv(x)), 2)
        for conv, skip in zip(self.up, reversed(skips)):
            x = F.interpolate(x, size=skip.shape[-2:], mode="nearest")
            x = F.relu(conv(torch.cat([x, skip], dim=1)))
        return x


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = self.a
        self.c = nn.Linear(8, 8)
        self.c.weight = self.a.weight

    def forward(self, x):
        return self.c(self.b(self.a(x))), self.a is self.b, self.c.weight is self.a.weight


class OwnCall(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)

    def __call__(self, x):
        return super().__call__(x) * 2


class OwnGetattr(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)

    def __getattr__(self, name):
        return 5 if name == "magic" else super().__getattr__(name)

    def forward(self, x):
        return F.linear(x, self.weight) * self.magic


@pytest.mark.parametrize("name", LAYERS)
def test_module(name):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    with torch.no_grad():
        check(make().eval(), torch.randn(*shape))


def test_training_mode_batch_norm_updates_buffers():
    module = nn.BatchNorm2d(3)
    ours = copy.deepcopy(module)
    x = torch.randn(2, 3, 4, 4)
    with torch.no_grad():
        expected = module(x)
        actual = enter(capture(ours, (x,), {}, OPTIONS), ours, (x,), {})
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert ours.num_batches_tracked == module.num_batches_tracked == 1
    torch.testing.assert_close(ours.running_mean, module.running_mean, rtol=0, atol=0)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.log = []
        self.last = None
        self.table = {"n": 1}
        self.register_buffer("state", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        self.log.append(self.calls)
        self.last = x * 2
        self.table["n"] += 1
        self.table["new"] = self.last
        self.state = self.state + x
        return self.last + self.state


def test_side_effects_on_the_module_are_replayed():
    ours, theirs = Counting(), Counting()
    x = torch.randn(4)
    captured = capture(ours, (x,), {}, OPTIONS)
    assert ours.calls == 0 and ours.log == [] and ours.table == {"n": 1}
    actual, expected = enter(captured, ours, (x,), {}), theirs(x)
    assert torch.equal(actual, expected) and torch.equal(ours.state, theirs.state)
    assert ours.calls == 1 and ours.log == [1] and ours.table["n"] == 2 and ours.table["new"] is ours.last
    assert ours.last is ours.table["new"] and torch.equal(ours.last, theirs.last)


def test_calls_for_their_effect_run_after_the_graph(capsys):
    def chatty(x):
        print("before", x.shape[0])
        x = x + 1
        print("after", 2.5, sep="-")
        return x

    check(chatty, torch.ones(3))
    assert capsys.readouterr().out == "before 3\nafter-2.5\n" * 2


def double(module, args, output):
    return output * 2


def increment(module, args):
    return (args[0] + 1,)


def test_hooks_run():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    module.register_forward_hook(double)
    module[0].register_forward_pre_hook(increment)
    module[1].register_forward_hook(lambda m, a, k, out: out + k.get("q", 3), with_kwargs=True)
    with torch.no_grad():
        check(module, torch.randn(2, 4))


def test_bound_methods_partials_and_callables():
    class Callable:
        def __init__(self):
            self.scale = 3

        def __call__(self, x, *, bias=1):
            return x * self.scale + bias

        def method(self, x, y=2):
            return x + y * self.scale

    x = torch.randn(3)
    check(Callable(), x, bias=5)
    check(Callable().method, x)
    check(functools.partial(Callable().method, y=7), x)
    check(functools.partial(torch.add, alpha=2), x, x)
    check(lambda q: q.sin(), x)
    check(torch.sin, x)


def test_parameter_named_like_generated_names():
    def attention(Q, K, V, *, G=1):
        return (Q @ K.T).softmax(-1) @ V * G

    check(attention, torch.randn(2, 4), torch.randn(3, 4), V=torch.randn(3, 5))


class Replacing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("unread", torch.ones(2))
        self.register_buffer("total", torch.zeros(2))
        self.register_buffer("scale", torch.full((2,), 3.0))

    def forward(self, x):
        self.total = self.total + x
        return self.total * self.scale


def test_a_buffer_that_is_replaced_in_every_call_is_an_input():
    ours, theirs = Replacing(), Replacing()
    captured = capture(ours, (torch.ones(2),), {}, OPTIONS)
    entry = build(captured, ours, captured.graph, snapshot())
    for k in range(4):
        x = torch.full((2,), float(k))
        compare(entry.call(x), theirs(x))
        compare(dict(ours.named_buffers()), dict(theirs.named_buffers()))


class M(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.relu(x) if torch.nn.functional.relu else x


def test_a_class_may_be_named_like_a_name_of_generated_code():
    check(M(), torch.randn(3))


class Marked(torch.nn.Module):
    """Tensors that are buffers or parameters by a mark, and a module that is given some."""

    def __init__(self):
        super().__init__()
        self.scale, self.weight = torch.nn.Buffer(torch.full((3,), 2.0)), torch.nn.Parameter(torch.full((3,), 3.0))

    def forward(self, x):
        kinds = torch.nn.Buffer, torch.nn.Parameter
        return x + sum(4**k for k, t in enumerate((x, self.scale, self.weight, x + 1)) if isinstance(t, kinds))


def test_tensors_that_are_buffers_by_a_mark():
    model, marked = Marked(), torch.ones(3)
    marked._is_param = True
    compiled = dovetail.compile(model, fullgraph=True)
    for x in (torch.ones(3), torch.nn.Buffer(torch.ones(3)), marked, torch.nn.Parameter(torch.ones(3))):
        assert torch.equal(compiled(x), model(x))


def test_a_buffer_that_compiled_code_adds():
    def add(model, x):
        model.added = torch.nn.Buffer(x + 1)
        return model.added * 2

    ours, theirs = torch.nn.Module(), torch.nn.Module()
    compare(dovetail.compile(add)(ours, torch.ones(3)), add(theirs, torch.ones(3)))
    compare(dict(ours.named_buffers()), dict(theirs.named_buffers()))
    assert [*theirs.state_dict()] == [*ours.state_dict()] == ["added"]

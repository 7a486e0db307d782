"""A backward pass whose gradients leave it in buckets: what listens to a parameter hears of it before the next part."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import dovetail
from dovetail.interop import data_parallel
from tests.autograd.comparing import alike, detached, nodes_of

SMALL = 600, 3000  # bytes of the buckets
BACKENDS = ("dovetail", "aot_eager")


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program of several processes."""
    monkeypatch.setattr("dovetail.request.bucket_bytes", lambda *_: SMALL)


class Layers(nn.Module):
    def __init__(self, count: int = 4, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(count))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        for layer in self.layers:
            x = x + self.norm(F.gelu(layer(x)))
        return x


X = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))


def several(fn: Any, **settings: Any) -> Any:
    return dovetail.compile(fn, fullgraph=True, **settings)


def at_once(fn: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same as one node."""
    monkeypatch.setattr("dovetail.request.bucket_bytes", lambda *_: None)
    return dovetail.compile(fn, fullgraph=True)


def gradients(model: nn.Module) -> list[Any]:
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def test_parameters_are_heard_of_between_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model, events = Layers(), list[str]()
    other = copy.deepcopy(model)
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: events.append(name))
    result = several(model)(X)
    parts = nodes_of(result)
    for k, node in enumerate(parts):
        node.register_prehook(lambda gradients, k=k: events.append(f"part {k}"))
    result.square().mean().backward()
    assert len(parts) > 2
    assert events.index("layers.3.weight") < events.index("part 1") < events.index("layers.0.weight")
    at_once(other, monkeypatch)(X).square().mean().backward()
    for found, expected in zip(gradients(model), gradients(other)):
        assert torch.equal(found, expected)


def test_nobody_listens_and_there_is_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(nodes_of(at_once(Layers(), monkeypatch)(X))) == 1


def test_a_small_model_is_one_node() -> None:
    assert len(nodes_of(several(nn.Linear(4, 4))(torch.ones(2, 4)))) == 1


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(600, 600) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).sin()
        return x


@pytest.mark.parametrize("kind", ["module", "method", "argument", "nobody"])
def test_hooks_on_parameters_listen(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program of one process: no setting says so here."""
    monkeypatch.setattr("dovetail.request.bucket_bytes", data_parallel.bucket_bytes)
    model, x = Wide(), torch.ones(1, 600)
    if kind != "nobody":
        model.layers[1].weight.register_post_accumulate_grad_hook(lambda parameter: None)
    if kind == "argument":
        result = several(lambda model, x: model(x))(model, x)
    else:
        result = several(model.forward if kind == "method" else model)(x)
    assert len(nodes_of(result)) == (1 if kind == "nobody" else 2)


def _accumulated(model, x):
    loss = model(x).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    return gradients(model)


def _one_at_a_time(model, x):
    loss = model(x).square().mean()
    return [torch.autograd.grad(loss, [p], retain_graph=True) for p in model.parameters()]


def _some(model, x):
    some = [p for k, p in enumerate(model.parameters()) if k % 3 == 1]
    return torch.autograd.grad(model(x).square().mean(), some)


def _of_an_input(model, x):
    x = x.clone().requires_grad_()
    (model(x * 2).sum() + model(x).square().sum()).backward()
    return x.grad, gradients(model)


def _twice(model, x):
    found = torch.autograd.grad(model(x).square().mean(), list(model.parameters()), create_graph=True)
    sum(g.square().sum() for g in found).backward()
    return gradients(model)


def _hooked(model, x):
    for p in model.parameters():
        p.register_hook(lambda g: g * 2)
    model(x).square().mean().backward()
    return gradients(model)


def _batched(model, x):
    y = model(x)
    given = torch.stack([torch.ones_like(y), y.detach()])
    return torch.autograd.grad(y, list(model.parameters()), given, is_grads_batched=True)


def _checkpointed(model, x):
    x = x.clone().requires_grad_()
    checkpoint(model, checkpoint(model, x, use_reentrant=False), use_reentrant=False).sum().backward()
    return x.grad, gradients(model)


def _frozen(model, x):
    model.layers[1].weight.requires_grad_(False)
    model(x).square().mean().backward()
    return gradients(model)


def _written_to(model, x):
    """Whoever is given a gradient may do with it what they want."""
    x = x.clone().requires_grad_()
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(_overwrite)
    model(x).square().mean().backward()
    return x.grad, gradients(model)


def _overwrite(parameter: Any) -> None:
    parameter.grad.fill_(7)


PASSES = [
    _accumulated, _one_at_a_time, _some, _of_an_input, _twice, _hooked, _batched, _checkpointed, _frozen, _written_to,
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PASSES, ids=lambda program: program.__name__.strip("_"))
def test_passes_are_eagers(program: Any, backend: str) -> None:
    model = Layers()
    want = detached(program(copy.deepcopy(model), X))
    compiled = several(copy.deepcopy(model), backend=backend)
    alike(detached(program(compiled, X)), want, rtol=1e-3, atol=1e-4)


class Shared(nn.Module):
    """Gradients that are read once more after they are complete: one is the other's, and one goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Parameter(torch.randn(16, 16)), nn.Parameter(torch.randn(16, 16))
        self.bias, self.first = nn.Parameter(torch.randn(8, 16)), nn.Linear(16, 16)

    def forward(self, x):
        y = self.first(x) + self.bias
        return y.sin() @ (self.one + self.other)


def test_memory_that_is_read_later_leaves_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.request.bucket_bytes", lambda *_: (1, 1))
    model = Shared()
    x = X.clone().requires_grad_()
    model(x).sum().backward()
    want, compiled = x.grad, several(model)
    x.grad = None
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(_overwrite)
    result = compiled(x)
    result.sum().backward()
    torch.testing.assert_close(x.grad, want)
    assert len(nodes_of(result)) > 2


def _step(parameter: Any) -> None:
    with torch.no_grad():
        parameter.sub_(parameter.grad, alpha=0.1)
    parameter.grad = None


@pytest.mark.parametrize("make", [Layers, Shared, lambda: Layers(12)], ids=["layers", "shared", "turns"])
def test_an_optimizer_steps_in_hooks(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes to parameters, which the backward pass reads: not before it has done so for the last time."""
    monkeypatch.setattr("dovetail.request.bucket_bytes", lambda *_: (1, 1))
    model = make()
    other = copy.deepcopy(model)
    compiled = several(other)
    for each in (model, other):
        for parameter in each.parameters():
            parameter.register_post_accumulate_grad_hook(_step)
    for _ in range(3):
        model(X).square().mean().backward()
        compiled(X).square().mean().backward()
    alike(detached(list(other.parameters())), detached(list(model.parameters())), rtol=1e-3, atol=1e-4)
    assert len(nodes_of(compiled(X))) > 3


def test_a_hook_that_writes_to_what_is_needed_later() -> None:
    """As in eager mode that is an error."""
    model = Layers()

    def hook(parameter: Any) -> None:
        with torch.no_grad():
            model.layers[0].weight.zero_()

    def program(model: Any) -> None:
        x = X.clone().requires_grad_()
        model(x).square().mean().backward()

    model.layers[3].weight.register_post_accumulate_grad_hook(hook)
    for call in (model, several(model)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            program(call)


class Heads(Layers):
    def forward(self, x):
        y = self.layers[1](self.layers[0](x).tanh())
        return self.layers[2](y), self.norm(y)


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_some_of_the_results(which: tuple[int, ...]) -> None:
    def program(model: Any) -> Any:
        results = model(X)
        sum(results[k].square().mean() for k in which).backward()
        return gradients(model)

    model = Heads()
    want = detached(program(copy.deepcopy(model)))
    compiled = several(copy.deepcopy(model))
    alike(detached(program(compiled)), want)
    assert len(nodes_of(compiled(X)[0])) > 1


def test_sizes_that_vary() -> None:
    model = Layers()
    compiled = several(copy.deepcopy(model), dynamic=True)
    for size in (3, 5, 4, 3):
        x = torch.randn(size, 16)
        compiled.zero_grad()
        model.zero_grad()
        alike(detached(_once(compiled, x)), detached(_once(model, x)), rtol=1e-3, atol=1e-4)


def _once(model, x):
    model(x).square().mean().backward()
    return gradients(model)


class Found(Layers):
    """Its sizes are found out, so that its programs are run in parts of another kind."""

    def forward(self, x):
        return super().forward(x[x[:, 0] > 0])


def test_sizes_that_are_found_out() -> None:
    model = Found()
    alike(detached(_once(several(copy.deepcopy(model)), X)), detached(_once(model, X)))


def test_equal_turns() -> None:
    model = Layers(12)
    compiled = several(copy.deepcopy(model))
    alike(detached(_once(compiled, X)), detached(_once(model, X)), rtol=1e-3, atol=1e-4)
    assert len(nodes_of(compiled(X))) > 3


def test_a_hook_that_raises_ends_the_pass() -> None:
    model = Layers()
    want = detached(_accumulated(copy.deepcopy(model), X))
    compiled = several(model)

    def hook(parameter: Any) -> None:
        raise ArithmeticError("enough")

    handle = model.layers[3].weight.register_post_accumulate_grad_hook(hook)
    with pytest.raises(ArithmeticError, match="enough"):
        compiled(X).square().mean().backward()
    handle.remove()
    model.zero_grad()
    alike(detached(_accumulated(compiled, X)), want, rtol=1e-3, atol=1e-4)


def test_a_compiled_function_that_a_hook_calls() -> None:
    model = Layers()
    compiled, step = several(model), dovetail.compile(lambda g: g.mul_(0.5).sum(), fullgraph=True)
    want = _once(copy.deepcopy(model), X)

    def hook(parameter: Any) -> None:
        step(parameter.grad)

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    found = _once(compiled, X)
    alike(detached(found), detached([g / 2 for g in want]), rtol=1e-3, atol=1e-4)


def test_a_gradient_is_taken_as_it_is() -> None:
    """It is copied where somebody else has it too."""
    model, addresses = Layers(), dict[str, int]()
    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda g, name=name: addresses.update({name: g.data_ptr()}))
    several(model)(X).square().mean().backward()
    assert addresses == {name: p.grad.data_ptr() for name, p in model.named_parameters()}


def test_a_gradient_that_is_let_go_is_freed_before_the_next_part() -> None:
    model, alive = Layers(), list[int]()

    def free(parameter: Any) -> None:
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(free)
    result = several(model)(X)
    for node in nodes_of(result):
        node.register_prehook(lambda gradients: alive.append(_tensors()))
    before = _tensors()
    result.square().mean().backward()
    assert max(alive[1:]) <= before


def _tensors() -> int:
    """How many tensors of the size of a weight there are, but for parameters."""
    found = (t for t in gc.get_objects() if type(t) is torch.Tensor)
    return sum(t.shape == (16, 16) for t in found)


def test_a_part_that_fails_is_made_in_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    from dovetail.runtime.call import buckets

    monkeypatch.setattr(dovetail.config, "strict", False)
    model = Layers()
    want = detached(_once(copy.deepcopy(model), X))
    compiled, stepper = dovetail.compile(model), buckets.stepper

    def failing(*args: Any) -> Any:
        steps = stepper(*args)

        def made(*args: Any) -> Any:
            yield next(steps(*args))
            raise ValueError("of ours")

        return made

    monkeypatch.setattr(buckets, "stepper", failing)
    with pytest.warns(UserWarning, match="of ours"):
        found = _once(compiled, X)
    alike(detached(found), want, rtol=1e-3, atol=1e-4)


def test_checked_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dovetail.config, "check_kernels", True)
    model = Layers()
    compiled = several(copy.deepcopy(model))
    alike(detached(_accumulated(compiled, X)), detached(_accumulated(model, X)), rtol=1e-3, atol=1e-4)


def test_a_profile_shows_each_part() -> None:
    compiled = several(Layers())
    _once(compiled, X)
    result = compiled(X)
    with torch.profiler.profile() as profile:
        result.square().mean().backward()
    shown = [event.name for event in profile.events()]
    parts = len(nodes_of(compiled(X)))
    assert sum(name.startswith("dovetail graph") for name in shown) == parts
    assert sum(name.startswith("k") for name in shown) > parts

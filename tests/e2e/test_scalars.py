"""Numbers that change from call to call are inputs from the second sight on: two compilations at most."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import dovetail
from dovetail.runtime.dispatch.dispatcher import REGISTRY


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


@pytest.fixture(params=["eager", "aot_eager", "dovetail"])
def backend(request: Any) -> str:
    return request.param


def entries(compiled: Any) -> int:
    return len(compiled._dovetail_dispatcher.entries)


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        assert found.dtype is expected.dtype
        near = {"atol": 0.02, "rtol": 0.02} if expected.dtype is torch.bfloat16 else {}  # eager rounds in between
        torch.testing.assert_close(found, expected, equal_nan=True, **near)
    elif isinstance(expected, (tuple, list)):
        assert type(found) is type(expected) and len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            same(f, e)
    else:
        assert type(found) is type(expected) and repr(found) == repr(expected)


def check(
    fn: Callable[..., Any], calls: Sequence[tuple[Any, ...]], most: int, backend: str = "eager", **how: Any
) -> Any:
    """Every call gives eager's result; at most `most` compilations."""
    compiled = dovetail.compile(fn, backend=backend, fullgraph=True, **how)
    for args in calls:
        same(compiled(*args), fn(*args))
    assert entries(compiled) <= most
    return compiled


X, N = torch.linspace(-1.7, 2.1, 6), torch.arange(6) - 2
H = X.bfloat16()
FLOATS = [0.25 * k for k in range(1, 21)]

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "multiply": lambda x, s: x * s,
    "subtract from": lambda x, s: s - x,
    "divide": lambda x, s: x / s + s / (x.abs() + 1),
    "alpha": lambda x, s: x.add(x, alpha=2) - torch.add(x, x, alpha=-s),
    "expression": lambda x, s: x * (1 - 0.9**s) / (s * s + 1),
    "power": lambda x, s: x.abs() ** s,
    "base": lambda x, s: s**x,
    "clamp": lambda x, s: x.clamp(-s, s) + torch.clamp(x, min=s),
    "compare": lambda x, s: torch.where(x > s, x, s),
    "masked": lambda x, s: x.masked_fill(x > 0, s),
    "full": lambda x, s: torch.full((3,), s),
    "item store": lambda x, s: stored(x, s),
    "modulo": lambda x, s: x % s + x // s,
    "returned": lambda x, s: (x + 1, s, s * 2, -s),
    "tensor": lambda x, s: x + torch.tensor(s),
    "relu of a sum": lambda x, s: (x + s).relu() + (s + x).relu(),
    "foreach": lambda x, s: torch._foreach_mul([x, x + 1], s),
}


def stored(x: Any, s: Any) -> Any:
    y = x.clone()
    y[1] = s
    return y


@pytest.mark.parametrize("case", ARITHMETIC)
def test_floats(case: str, backend: str) -> None:
    check(ARITHMETIC[case], [(X, s) for s in FLOATS], 2, backend)


@pytest.mark.parametrize("case", sorted(ARITHMETIC.keys() - {"alpha", "clamp"}))
def test_integers(case: str, backend: str) -> None:
    check(ARITHMETIC[case], [(X, k) for k in range(1, 12)], 2, backend)


@pytest.mark.parametrize("case", sorted(ARITHMETIC.keys() - {"alpha", "base", "divide"}))
def test_on_integer_tensors(case: str, backend: str) -> None:
    check(ARITHMETIC[case], [(N, k) for k in range(1, 12)], 2, backend)


@pytest.mark.parametrize("case", ["multiply", "subtract from", "divide", "clamp", "masked", "compare", "full"])
def test_promotion(case: str, backend: str) -> None:
    for x in (N, H, X.double(), torch.tensor(3), torch.tensor(2.5), N.to(torch.int8)):
        check(ARITHMETIC[case], [(x, s) for s in FLOATS[:4]], 2, backend)


def test_a_hundred_values(backend: str) -> None:
    check(lambda x, lr: x - lr * x.sin(), [(X, 1 / k) for k in range(1, 101)], 2, backend)


def test_special_values(backend: str) -> None:
    values = (1.0, 2.0, math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1e308)
    check(lambda x, s: (x * s, 1 / (x * 0 + s), s), [(X, s) for s in values], 2, backend)


def test_huge_integers_stay_right() -> None:
    check(lambda x, k: (x + 1, k * 3), [(X, k) for k in (1, 2, 2**70, -(2**90))], 2)
    check(lambda x, k: x * k, [(X, k) for k in (1, 2, 2**62, -(2**63), 2**63 - 1)], 2)
    compiled = dovetail.compile(lambda x, k: x * k, backend="eager")
    for k in (1, 2, 3):
        compiled(X, k)
    with pytest.raises((RuntimeError, OverflowError)):
        compiled(X, 2**70)


def test_bool_is_no_number() -> None:
    check(lambda x, flag: x + 1 if flag else x - 1, [(X, v) for v in (True, False, True)], 2)
    check(lambda x, k: x * k, [(X, v) for v in (1, 2, True, 3, False)], 4)


def test_an_outcome_is_relied_on_not_the_value() -> None:
    check(lambda x, k: x + k if k % 2 else x - k, [(X, k) for k in range(30)], 3)
    check(lambda x, k: x + k if 5 < k <= 9 else x - k, [(X, k) for k in range(30)], 4)
    check(lambda x, s: x * max(s, 0.5) + min(s, 2.0), [(X, s) for s in FLOATS], 4)
    check(lambda x, s: x if s is None or s == "all" else x * s, [(X, s) for s in FLOATS], 2)
    check(lambda x, s: x * s if isinstance(s, float) and s else x, [(X, s) for s in FLOATS], 2)


def test_a_value_that_shapes_a_tensor_is_relied_on() -> None:
    check(lambda x, k: x.new_zeros(k) + k, [(X, k) for k in (1, 2, 3, 2, 1)], 3)
    check(lambda x, k: x[k] + x.sum(k - k), [(X, k) for k in (1, 2, 3, 2, 1)], 3)


def test_what_raises_raises() -> None:
    fn = lambda x, s: x * (1 / s) + math.sqrt(s)
    compiled = check(fn, [(X, s) for s in FLOATS], 2)
    for bad, error in ((0.0, ZeroDivisionError), (-1.0, ValueError)):
        with pytest.raises(error):
            compiled(X, bad)


def test_native_functions() -> None:
    check(lambda x, s: x * math.exp(-s) + math.cos(s) + abs(s) + round(s, 1), [(X, s) for s in FLOATS], 2)
    check(lambda x, s: (x * float(s), int(s), math.floor(s)), [(X, s) for s in FLOATS], 2)


def test_text(capsys: Any) -> None:
    def show(x, s):
        print(f"lr {s:.3f}", s)
        return x * s, f"{s}!"

    compiled = dovetail.compile(show, backend="eager", fullgraph=True)
    for s in FLOATS:
        same(compiled(X, s), (X * s, f"{s}!"))
        assert capsys.readouterr().out == f"lr {s:.3f} {s}\n"
    assert entries(compiled) == 2


class Stepping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step, self.inner, self.options = 0, nn.Linear(6, 6), {"lr": 0.5}

    def forward(self, x: torch.Tensor) -> Any:
        before = self.step
        self.step += 1
        self.options["lr"] *= 0.9
        return self.inner(x) * self.options["lr"] + self.step, before, self.step


def test_attributes_and_items(backend: str) -> None:
    model, other = Stepping(), Stepping()
    other.load_state_dict(model.state_dict())
    compiled = dovetail.compile(model, backend=backend)
    for _ in range(20):
        same(compiled(X), other(X))
    assert model.step == other.step == 20 and model.options == other.options
    assert entries(compiled) == 2


COUNT = 0


def test_globals_cells_and_defaults(backend: str, monkeypatch: Any) -> None:
    monkeypatch.setitem(globals(), "COUNT", 0)

    def counting(x):
        global COUNT
        COUNT += 1
        return x * COUNT

    compiled = dovetail.compile(counting, backend=backend)
    for k in range(1, 21):
        same(compiled(X), X * k)
        assert COUNT == k
    total = 0.0

    def adding(x, scale=2.0):
        nonlocal total
        total += 0.5
        return x * scale + total

    summing = dovetail.compile(adding, backend=backend)
    for k in range(1, 21):
        same(summing(X), X * 2.0 + 0.5 * k)
    assert entries(compiled) == entries(summing) == 2


def test_groups_of_parameters(backend: str) -> None:
    def step(groups, x):
        for group in groups:
            x = x - group["lr"] * group["decay"] * x
        return x

    calls = [([{"lr": 0.1 * k, "decay": 0.01}, {"lr": 0.2 * k, "decay": 0.02}], X) for k in range(20)]
    check(step, calls, 2, backend)


def test_after_a_break() -> None:
    def scaled(x):
        s = x.sum().item()
        return x * s + s, s

    before = set(REGISTRY.dispatchers)
    compiled = dovetail.compile(scaled, backend="eager")
    for _ in range(20):
        x = torch.randn(5)
        same(compiled(x), scaled(x))
    made = set(REGISTRY.dispatchers) - before
    rests = [d for d in made if getattr(d.fn, "_dovetail_continuation", None) is not None]
    assert rests and all(len(d.entries) <= 2 for d in rests)


def test_numbers_stay_constants_on_request() -> None:
    compiled = check(lambda x, s: x * s, [(X, s) for s in FLOATS[:5]], 5, dynamic=False)
    assert entries(compiled) == 5
    compiled = check(lambda x, s: x * s, [(X, s) for s in FLOATS], 1, dynamic=True)
    assert entries(compiled) == 1


def test_a_long_computation_of_numbers() -> None:
    def decayed(x, s):
        for _ in range(200):
            s = s * 0.99 + s * 0.001
        return x * s

    with dovetail.config.patch(recompile_limit=3):
        compiled = dovetail.compile(decayed, backend="eager")
        for s in FLOATS[:3]:
            same(compiled(X, s), decayed(X, s))


def test_unread_numbers_are_not_guarded() -> None:
    check(lambda x, s: x + 1, [(X, s) for s in FLOATS], 1)
    check(lambda x, s: (x + 1, s), [(X, s) for s in FLOATS], 1)


def test_a_value_read_before_it_is_overwritten() -> None:
    class Holder:
        value = 1.5

    holder = Holder()
    holder.value = 2.5

    def swap(x, new):
        old = holder.value
        holder.value = new
        return x + 1, old

    compiled = dovetail.compile(swap, backend="eager")
    expected = 2.5
    for k in range(6):
        assert compiled(X, float(k))[1] == expected
        expected = float(k)
    assert holder.value == 5.0


def test_tuples_and_membership() -> None:
    check(lambda x, pair: x * pair[0] + pair[1], [(X, (k, 2 * k)) for k in range(10)], 2)
    check(lambda x, k: x + 1 if k in (1, 2, 3) else x - 1, [(X, k) for k in range(10)], 5)
    check(lambda x, k: x + 1 if k in {1, 2, 3} else x - 1, [(X, k) for k in range(10)], 3)
    check(lambda x, sizes: x.reshape(sizes), [(X, s) for s in ((2, 3), (3, 2), (6, 1), (2, 3))], 3)


def test_gradients_asked_for_inside(backend: str) -> None:
    def gradient(x, s):
        y = x.detach().requires_grad_()
        (y * s).sum().backward()
        return y.grad

    compiled = dovetail.compile(gradient, backend=backend)
    with torch.enable_grad():
        for s in FLOATS[:4]:
            same(compiled(X, s), torch.full_like(X, s))


TRAINED: dict[str, Callable[[Any, Any], Any]] = {
    "scaled": lambda y, s: y * s,
    "divided": lambda y, s: s / (y.abs() + 1),
    "power": lambda y, s: (y / s).tanh() ** s,
    "bounds": lambda y, s: y.clamp(-s, s) + s,
    "choice": lambda y, s: torch.where(y > s, y, y * s),
    "slope": lambda y, s: nn.functional.leaky_relu(y, s),
    "elu": lambda y, s: nn.functional.elu(y, s),
    "alpha": lambda y, s: torch.add(y, y.sin(), alpha=s),
}


@pytest.mark.parametrize("values", [(0.5, 0.7, 0.9), (1, 2, 3)], ids=["floats", "integers"])
@pytest.mark.parametrize("case", TRAINED)
def test_gradients_through_numbers(case: str, values: tuple[Any, ...], backend: str) -> None:
    layer = nn.Linear(6, 6)
    compiled = dovetail.compile(lambda x, s: TRAINED[case](layer(x), s).sum(), backend=backend, fullgraph=True)
    with torch.enable_grad():
        for s in values:
            (found,) = torch.autograd.grad(compiled(X, s), layer.weight)
            (expected,) = torch.autograd.grad(TRAINED[case](layer(X), s).sum(), layer.weight)
            same(found, expected)
    assert entries(compiled) == 2


def test_gradients_of_gradients_through_numbers(backend: str) -> None:
    compiled = dovetail.compile(lambda x, s: (x * s).sin().sum(), backend=backend, fullgraph=True)

    def second(fn: Any, s: Any) -> Any:
        x = X.clone().requires_grad_()
        (first,) = torch.autograd.grad(fn(x, s), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0]

    with torch.enable_grad():
        for s in FLOATS[:3]:
            same(second(compiled, s), second(lambda x, s: (x * s).sin().sum(), s))


def test_the_sum_of_floats_is_as_exact_as_pythons():
    def f(x, values, step):
        return sum(values), sum([step, *values]), sum(values, 0.5), x + 1

    compiled = dovetail.compile(f, backend="eager")
    for step in (0.1, 0.2, 0.3):
        values = [0.1] * 10
        assert compiled(torch.ones(1), values, step)[:3] == f(torch.ones(1), values, step)[:3]

"""`register_hook` of what the program computes, inside the graph: PyTorch's engine calls the hook."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import dovetail

Tensor = torch.Tensor
SEEN: list[float] = []


def triple(gradient: Tensor) -> Tensor:
    SEEN.append(float(gradient.sum()))
    return gradient * 3


def plain(x: Tensor, k: float) -> Tensor:
    y = x * 2
    y.register_hook(triple)
    return y.sum()


def used_before(x: Tensor, k: float) -> Tensor:
    y = x * 2
    z = y + 1
    y.register_hook(lambda gradient: gradient * 3)
    return (y * z).sum()


def by_a_number(x: Tensor, k: float) -> Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient * k)
    return y.sum()


def several(x: Tensor, k: float) -> Tensor:
    y = x * 2
    y.register_hook(lambda gradient: None)
    y.register_hook(triple)
    y.mul_(2)
    return y.sum()


def backward_inside(x: Tensor, k: float) -> Tensor:
    y = x * 2
    y.register_hook(triple)
    y.sum().backward()
    return x.grad * 1


def removed(x: Tensor, k: float) -> Tensor:
    y = x * 2
    handle = y.register_hook(triple)
    z = y.sin()
    handle.remove()
    return z.sum()


def given(x: Tensor, k: float) -> Any:
    y = x * 2
    return y.sum(), y.register_hook(triple)


def of_what_is_computed(x: Tensor, k: float) -> Tensor:
    y = x * 2
    other = y.detach() + k
    y.register_hook(lambda gradient: gradient * other)
    return y.sum()


def from_outside(x: Tensor, k: float) -> Tensor:
    x.register_hook(triple)
    return (x * 2).sum()


def twice_on_an_input(x: Tensor, k: float) -> Tensor:
    x.register_hook(lambda gradient: gradient + k)
    y = x.sin()
    x.register_hook(lambda gradient: gradient * 2)
    return (x * y).sum()


def of_computed_tensors(x: Tensor, k: float) -> Tensor:
    y, seen = x * 2, []
    z = y.detach() * k

    def hook(gradient: Tensor) -> Tensor:
        seen.append(gradient * z)
        SEEN.append(len(seen))
        return seen[-1]

    y.register_hook(hook)
    x.register_hook(hook)
    return (y * y).sum()


def after_accumulation(x: Tensor, k: float) -> Tensor:
    y = x * k
    x.register_post_accumulate_grad_hook(lambda leaf: SEEN.append(float(leaf.grad.sum() * k + y.sum())))
    return y.sum()


def of_a_method(x: Tensor, k: float) -> Tensor:
    y = x * 2
    y.register_hook(Scale(k).scaled)
    y.register_hook(functools.partial(torch.mul, other=torch.tensor(k)))
    return y.sum()


def before_a_change_in_place(x: Tensor, k: float) -> Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient * y.shape[0] + k)
    y.mul_(3)
    return y.sum()


class Scale:
    def __init__(self, k: float) -> None:
        self.k = k

    def scaled(self, gradient: Tensor) -> Tensor:
        return gradient * self.k


WHOLE: dict[str, Callable[[Tensor, float], Any]] = {
    f.__name__: f
    for f in (
        plain, used_before, by_a_number, several, backward_inside, removed, given, of_what_is_computed, from_outside,
        twice_on_an_input, of_computed_tensors, after_accumulation, of_a_method, before_a_change_in_place,
    )
}  # fmt: skip


def without_history(x: Tensor, k: float) -> Tensor:
    y = x.detach() * 2
    y.register_hook(triple)
    return y.sum()


def on_no_leaf(x: Tensor, k: float) -> Tensor:
    y = x * 2
    y.register_post_accumulate_grad_hook(print)
    return y.sum()


def asked_by_backward(x: Tensor, k: float) -> Tensor:
    y = x * 2
    z = y.detach() + k
    y.register_hook(lambda gradient: gradient * z)
    y.sum().backward()
    return x.grad * 1


def used_handle(x: Tensor, k: float) -> Tensor:
    y = x * 2
    SEEN.append(type(y.register_hook(triple).hooks_dict_ref()).__name__)
    return y.sum()


BREAKING: dict[str, Callable[[Tensor, float], Any]] = {
    f.__name__: f for f in (without_history, on_no_leaf, asked_by_backward, used_handle)
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", [*WHOLE, *BREAKING])
def test_gradients_go_through_hooks(name: str, fullgraph: bool, backend: str) -> None:
    fn = WHOLE.get(name) or BREAKING[name]
    dovetail.reset()
    compiled = dovetail.compile(fn, backend=backend, fullgraph=fullgraph and name in WHOLE)
    for k in (2.0, 5.0, 5.0):
        assert _outcome(compiled, k) == _outcome(fn, k)


def unreached(x: Tensor, k: float) -> Tensor:
    y, z = x * 2, x * 3
    y.register_hook(triple)
    SEEN.append(float(y.detach().sum()))
    return z.sum()


WHOLE["unreached"] = unreached


def test_both_sides_of_a_hook_are_compiled() -> None:
    found = dovetail.explain(plain)(torch.ones(2, requires_grad=True), 2.0)
    assert found.graph_count == 2 and found.op_count and "[gradient-hook]" in str(found)


def frozen_below(x: Tensor, k: float) -> Tensor:
    y = (x.detach() * k).requires_grad_()
    z = y.sin() * x
    y.requires_grad_(True)
    z.sum().backward()
    SEEN.append(float(y.grad.sum()))  # type: ignore[union-attr]
    return x.grad * 1  # type: ignore[operator]


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
def test_both_sides_of_a_new_leaf_are_compiled(backend: str) -> None:
    found = dovetail.explain(frozen_below)(torch.ones(2, requires_grad=True), 2.0)
    assert found.graph_count > 1 and found.op_count and "[new-leaf]" in str(found)
    compiled = dovetail.compile(frozen_below, backend=backend)
    for k in (2.0, 5.0, 5.0):
        assert _outcome(compiled, k) == _outcome(frozen_below, k)


def _outcome(fn: Callable[[Tensor, float], Any], k: float) -> Any:
    x = torch.ones(2, requires_grad=True)
    SEEN.clear()
    try:
        result = fn(x, k)
    except RuntimeError as error:
        return str(error)
    result = result[0] if isinstance(result, tuple) else result
    if result.requires_grad:
        result.backward()
    return result.tolist(), x.grad.tolist(), list(SEEN)  # type: ignore[union-attr]


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
@pytest.mark.parametrize("fn", [from_outside, twice_on_an_input, of_computed_tensors, after_accumulation])
def test_hooks_stay_on_a_tensor_from_outside(fn: Callable[[Tensor, float], Tensor], backend: str) -> None:
    def program(call: Callable[[Tensor, float], Tensor]) -> Any:
        SEEN.clear()
        x = torch.ones(2, requires_grad=True)
        for k in (2.0, 3.0, 3.0):
            call(x, k).backward()
        hooks = len(x._backward_hooks or ()), len(x._post_accumulate_grad_hooks or ())
        return x.grad.tolist(), list(SEEN), hooks  # type: ignore[union-attr]

    assert program(dovetail.compile(fn, backend=backend, fullgraph=True)) == program(fn)


def test_handles_that_the_program_keeps() -> None:
    def attach(model: torch.nn.Module, x: Tensor) -> Tensor:
        model.handle = model.weight.register_hook(lambda gradient: gradient * 0)
        return model(x)

    def program(call: Callable[[torch.nn.Module, Tensor], Tensor]) -> Any:
        torch.manual_seed(0)
        model, found = torch.nn.Linear(2, 2), []
        for _ in range(3):
            call(model, torch.ones(2)).sum().backward()
            found.append(model.weight.grad.tolist())  # type: ignore[union-attr]
            model.handle.remove()  # type: ignore[operator, union-attr]
            model(torch.ones(2)).sum().backward()
            found.append((model.weight.grad.tolist(), len(model.weight._backward_hooks or ())))  # type: ignore[union-attr]
        return found

    assert program(dovetail.compile(attach, backend="eager", fullgraph=True)) == program(attach)

"""A graph, a call or a backward pass that PyTorch runs operator by operator is warned of, once for each place."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import dovetail
from dovetail import pipeline
from tests.forks import ROOT, python


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 if gradient.sum() != 0 else gradient


@pytest.fixture(autouse=True)
def _nothing_told() -> None:
    dovetail.reset()


def weight() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def hooked(x):
    y = x * 2
    y.register_hook(lambda gradient: gradient * 2)
    return y.sin() * 3


def leaf(x):
    made = torch.ones(3, requires_grad=True)
    return (made * x).sin()


def differentiated(x):
    y = (x * x).sum()
    (gradient,) = torch.autograd.grad(y, x)
    return gradient, y, x.sin()


def setting(x):
    torch.use_deterministic_algorithms(True)
    y = x.sin() * 2
    torch.use_deterministic_algorithms(False)
    return y


def own_backward(x):
    return Doubled.apply(x).sin() * 2


def elsewhere(x):
    return x.sin() * 2


def numbers(x):
    y = x * 2
    y.mul_(3)
    return y * math.floor(y.detach().sum().item()) + 1


#: A function, what it is called with, and what the warning says of it.
GRAPHS: dict[str, tuple[Callable[..., Any], Callable[[], torch.Tensor], str]] = {
    "hook": (hooked, weight, "'register_hook' in it"),
    "leaf": (leaf, lambda: torch.ones(3), "'requires_grad' in it"),
    "differentiated": (differentiated, weight, "it computes gradients"),
    "setting": (setting, lambda: torch.ones(3), "it changes the setting 'deterministic_algorithms'"),
    "own backward": (own_backward, weight, "runs users' own"),
    "without kernels": (elsewhere, lambda: torch.ones(3, device="meta"), "not for meta"),
    "in one place": (lambda x: x.add_(1).sin(), lambda: torch.ones(4).as_strided((3, 2), (1, 1)), "share a place"),
    "numbers": (numbers, weight, "numbers that it takes out"),
}


def told(run: Callable[[], Any]) -> list[str]:
    """The warnings of the package, of which none is left out by Python."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(w.message) for w in caught if str(w.message).startswith("dovetail: ")]


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph(name: str) -> None:
    fn, given, reason = GRAPHS[name]
    compiled = dovetail.compile(fn, fullgraph=True)
    (message,) = told(lambda: compiled(given()))
    assert f"[uncompiled-graph] PyTorch runs a graph of {fn.__qualname__} (" in message and reason in message
    assert told(lambda: dovetail.compile(fn, fullgraph=True)(given())) == [], "it is told once"


def test_it_has_the_line_and_where_more_is_said() -> None:
    (message,) = told(lambda: dovetail.compile(hooked, fullgraph=True)(weight()))
    lines = [line.strip() for line in message.splitlines()]
    assert "y.register_hook(lambda gradient: gradient * 2)" in lines
    assert lines[-1] == "Explained by: dovetail help uncompiled-graph" and lines[-2].startswith("What to do: ")


def test_a_call_whose_inputs_share_memory() -> None:
    compiled = dovetail.compile(lambda x, y: (x.add_(1), y.sin() * 2), fullgraph=True)
    assert told(lambda: compiled(torch.ones(3), torch.ones(3))) == []
    shared = torch.ones(4)
    (message,) = told(lambda: [compiled(shared[1:], shared[:-1]) for _ in range(2)])
    assert "PyTorch runs a call of " in message and "shares memory" in message


def test_a_call_with_hooks_that_only_some_results_are_for() -> None:
    compiled = dovetail.compile(lambda x, y: (x.sin() * 2, y.cos() * 2), fullgraph=True)
    x, y = weight(), weight()
    assert told(lambda: compiled(x, y)) == []
    x.register_hook(lambda gradient: None)
    (message,) = told(lambda: compiled(x, y))
    assert "PyTorch runs a call of " in message and "hooks before it" in message


def test_a_backward_pass_that_is_differentiated() -> None:
    """It is compiled, unless the call has written to what it was given."""
    state = torch.zeros(3)

    def counting(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        state.add_(1)
        return (x.sin() * 2).sum()

    compiled, x = dovetail.compile(counting, fullgraph=True), weight()
    plain = dovetail.compile(lambda x: (x.sin() * 2).sum(), fullgraph=True)
    assert told(lambda: torch.autograd.grad(compiled(x, state), x)) == []
    assert told(lambda: torch.autograd.grad(plain(x), x, create_graph=True)) == []
    (message,) = told(lambda: torch.autograd.grad(compiled(x, state), x, create_graph=True))
    assert "PyTorch runs a backward pass of " in message and "differentiated in turn" in message


def test_backward_passes_from_more_choices_of_results_than_there_are_programs(monkeypatch) -> None:
    monkeypatch.setattr(pipeline, "MOST_PARTIAL", 1)
    compiled, x = dovetail.compile(lambda x: (x.sin() * 2, x.cos() * 2, x.exp() * 2), fullgraph=True), weight()
    results = compiled(x)
    assert told(lambda: results[0].sum().backward(retain_graph=True)) == []
    (message,) = told(lambda: [results[k].sum().backward(retain_graph=True) for k in (1, 2, 1)])
    assert "PyTorch runs a backward pass of " in message and "one too many" in message


def test_what_loses_nothing_is_not_warned_of() -> None:
    def one(x):
        y = x * 2
        y.register_hook(lambda gradient: gradient * 2)
        return y

    assert told(lambda: dovetail.compile(one, fullgraph=True)(weight())) == []


def asserted(x):
    y = x.sin() * 2
    if x.sum().item() <= 0:
        raise AssertionError("not positive")
    return y.cos() + x.any().item() * y


def test_flags_cut_a_graph_as_numbers_do() -> None:
    compiled = dovetail.compile(asserted, fullgraph=True)
    assert told(lambda: compiled(torch.ones(3))) == []
    torch.testing.assert_close(compiled(torch.ones(3)), asserted(torch.ones(3)))
    with pytest.raises(AssertionError, match="not positive"):
        compiled(torch.zeros(3))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_who_asks_for_operators_is_not_warned(backend: str) -> None:
    def run() -> None:
        dovetail.compile(hooked, backend=backend, fullgraph=True)(weight())
        x = weight()
        torch.autograd.grad(dovetail.compile(torch.sin, backend=backend)(x).sum(), x, create_graph=True)

    assert told(run) == []


KEPT = """
import torch, dovetail

@dovetail.compile(fullgraph=True)
def f(x):
    made = torch.ones(3, requires_grad=True)
    return (made * x).sin() * 2

f(torch.ones(3))
"""


def test_a_graph_that_another_process_has_kept(tmp_path) -> None:
    (tmp_path / "program.py").write_text(KEPT)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "DOVETAIL_CACHE_DIR": str(tmp_path / "cache")}
    errors = [python(str(tmp_path / "program.py"), env=env).stderr for _ in range(2)]
    assert all(error.count("[uncompiled-graph]") == 1 for error in errors), errors


def after_a_break(x):
    with torch.no_grad():
        y = x.sin() * 2
        dovetail.graph_break()
        y = y.cos() + 1
    return (y * x).exp()


def ending_in_a_break(x):
    with torch.no_grad():
        y = x.sin() * 2
        dovetail.graph_break()
        y = y.cos() + 1
    return y


NORM = torch.nn.LayerNorm(3)
COMPILED: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "recording that begins inside": (after_a_break, {}),
    "recording that begins at the end": (ending_in_a_break, {}),
    "numbers that no call has shown to change": (lambda x: NORM(x.sin()) * 2, {"dynamic": True}),
    "a batch norm of sizes that vary": (
        lambda x: torch.nn.functional.batch_norm(x.expand(4, 3).sin(), None, None, training=True) + x, {"dynamic": True}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_what_is_compiled_after_all(name: str) -> None:
    fn, options = COMPILED[name]
    compiled = dovetail.compile(fn, **options)
    assert told(lambda: compiled(weight())) == []
    ours, eager = weight(), weight()
    for call, given in ((compiled, ours), (fn, eager)):
        result = call(given)
        if result.requires_grad:
            result.sum().backward()
    torch.testing.assert_close(ours.grad, eager.grad)
    torch.testing.assert_close(compiled(ours), fn(eager))


def test_a_number_that_changes_leaves_one_operator_alone() -> None:
    def fn(x, eps):
        return torch.nn.functional.layer_norm(x.sin() * 2, (3,), eps=eps).cos() * 3

    compiled = dovetail.compile(fn, fullgraph=True)
    rates = [0.1, 0.2, 0.3, 0.4]
    assert told(lambda: [compiled(weight(), eps) for eps in rates]) == []
    for eps in rates:
        torch.testing.assert_close(compiled(weight(), eps), fn(weight(), eps))
    assert len(compiled._dovetail_dispatcher.entries) == 2


def test_recording_that_is_turned_on_in_inference_mode() -> None:
    def fn(x):
        with torch.enable_grad():
            y = x.sin() * 2
        return y + 1

    with torch.inference_mode():
        compiled = dovetail.compile(fn, fullgraph=True)
        (message,) = told(lambda: compiled(weight()))
        torch.testing.assert_close(compiled(weight()), fn(weight()))
    assert "inference mode" in message

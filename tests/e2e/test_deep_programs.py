"""Programs of many operators in a row, of many iterations, and many calls deep; and calls near Python's own limit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.capture.driver import capture
from dovetail.codegen import cpu, gpu
from dovetail.ir import evaluate, text
from dovetail.ir.liveness import statement_roots
from dovetail.ir.loops import DEEPEST, Group
from dovetail.lower import lower
from dovetail.normalize import normalize
from dovetail.options import Options
from dovetail.schedule import schedule

X = torch.linspace(-1, 1, 8)


def repeated(step: Callable[[Any, int], Any], count: int) -> Callable[[Any], Any]:
    def program(x):
        for k in range(count):
            x = step(x, k)
        return x

    return program


#: One operator, or a few, that follow each other; each is bounded for any number of steps.
STEPS: dict[str, Callable[[Any, int], Any]] = {
    "sine": lambda x, k: torch.sin(x),
    "sum": lambda x, k: x + 0.5,
    "iteration": lambda x, k: torch.sin(x) * 1.01 + k * 1e-3,
    "views": lambda x, k: (x + 1).view(2, 4).t().reshape(8) - 1,
    "rolled": lambda x, k: torch.cat([x[1:], x[:1]]) * 0.99,
    "chosen": lambda x, k: torch.where(x > k, x - 0.01, x + 0.01),
    "integers": lambda x, k: (x.to(torch.int32) + x).remainder(3),
    "norm": lambda x, k: F.layer_norm(x + x.sum(), (8,)),
    "products": lambda x, k: torch.outer(x, x) @ x / 4,
}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_many_operators_in_a_row(name: str, train: bool) -> None:
    def seen(fn: Callable[[Any], Any]) -> list[torch.Tensor]:
        x = X.double().clone().requires_grad_(train)
        result = fn(x)
        return [result.detach(), *(torch.autograd.grad(result.sum(), [x]) if train and result.requires_grad else ())]

    program = repeated(STEPS[name], 150 if name == "iteration" else 30)
    torch.testing.assert_close(seen(dovetail.compile(program, fullgraph=True)), seen(program))


def scheduled(fn: Callable[[Any], Any]) -> Any:
    options = Options()
    captured = capture(fn, (X,), {}, options)
    return schedule(lower(normalize(captured.graph, [i.fake for i in captured.inputs], options), options), options)


@pytest.mark.parametrize("name", STEPS)
def test_no_expression_grows_with_the_program(name: str) -> None:
    """So that no walk nests deeper than Python allows, however long the program is; on both devices."""
    program = scheduled(repeated(STEPS[name], 300 if name in ("sum", "iteration") else 60))
    groups = [item for item in program.items if isinstance(item, Group)]
    roots = [root for group in groups for s in group.statements() for root in statement_roots(s)]
    assert max(root.depth for root in roots) <= DEEPEST
    assert text.program_text(program) and evaluate.evaluate(program, [X])
    for group in groups[:2]:
        assert cpu.generate(group, Options()).text and gpu.generate(group, Options()).text


def test_many_calls_deep() -> None:
    def down(n, x):
        return x.sin() if n == 0 else down(n - 1, x) + 1

    limit, count = sys.getrecursionlimit(), 400
    compiled = dovetail.compile(lambda x: down(count, x), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(X), down(count, X))
    assert sys.getrecursionlimit() == limit


def test_the_limit_that_the_program_sees_is_its_own() -> None:
    fn = lambda x: x + sys.getrecursionlimit()
    assert torch.equal(dovetail.compile(fn, fullgraph=True)(X), fn(X))


def far_down(count: int, call: Callable[[], Any]) -> Any:
    return call() if count == 0 else far_down(count - 1, call)


def depth() -> int:
    frame, count = sys._getframe(1), 1
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


def near(x):
    return F.layer_norm(x, (8,)).sin() + x.sum()


@pytest.mark.skipif(dovetail.config.check_kernels, reason="checks need more frames than that")
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("room", [150, 60, 40, 30, 20, 14])
def test_near_pythons_limit(room: int, known: bool) -> None:
    """Where eager works, so does the compiled function, and afterwards everything does."""
    limit, before = sys.getrecursionlimit(), torch.is_grad_enabled()
    compiled = dovetail.compile(near)
    if known:
        compiled(X)
    down = limit - depth() - room
    torch.testing.assert_close(far_down(down, lambda: near(X)), near(X))
    for _ in range(2):
        torch.testing.assert_close(far_down(down, lambda: compiled(X)), near(X))
    torch.testing.assert_close(compiled(X), near(X))
    assert (sys.getrecursionlimit(), torch.is_grad_enabled()) == (limit, before)
    assert torch._C._len_torch_dispatch_stack() == torch._C._len_torch_function_stack() == 0

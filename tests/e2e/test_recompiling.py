"""What a compiled function checks on every call, seen through how often its backend is asked."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import dovetail
from dovetail.guards import explain
from dovetail.guards.conditions import write


class Counting:
    """A backend that counts the graphs it is given and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        return gm.forward


def counted(fn: Callable[..., Any]) -> tuple[Callable[..., Any], list[torch.fx.GraphModule]]:
    backend = Counting()
    return dovetail.compile(fn, backend=backend, dynamic=False), backend.graphs


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


CHANGES = {
    "shape": lambda: torch.randn(3, 5),
    "rank": lambda: torch.randn(3, 4, 1),
    "dtype": lambda: torch.randn(3, 4).double(),
    "stride": lambda: torch.randn(4, 3).t(),
    "requires_grad": lambda: torch.randn(3, 4).requires_grad_(),
    "subclass": lambda: nn.Parameter(torch.randn(3, 4), requires_grad=False),
    "type": lambda: 2.5,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_argument(change: str) -> None:
    f, graphs = counted(lambda x, y: torch.sin(y) + x * 2)
    y = torch.randn(1)
    for x in (torch.randn(3, 4), torch.randn(3, 4), CHANGES[change]()):
        torch.testing.assert_close(f(x, y), torch.sin(y) + x * 2)
    assert len(graphs) == 2
    again = CHANGES[change]()
    torch.testing.assert_close(f(again, y), torch.sin(y) + again * 2)
    assert len(graphs) == 2


def test_other_values_do_not_recompile() -> None:
    f, graphs = counted(lambda x: x.relu() + 1)
    for _ in range(5):
        x = torch.randn(7)
        torch.testing.assert_close(f(x), x.relu() + 1)
    assert len(graphs) == 1


def test_numbers_strings_and_none_are_guarded() -> None:
    def g(x, kind, n=None):
        y = x * 2 if kind == "double" else x - 1
        return y if n is None else y + n

    f, graphs = counted(g)
    x = torch.randn(3)
    for arguments in (("double",), ("same",), ("double", 1), ("double", 2), ("double",)):
        torch.testing.assert_close(f(x, *arguments), g(x, *arguments))
    assert len(graphs) == 4


SCALE = 2.0


def test_a_global_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    f, _ = counted(lambda x: x * SCALE)
    x = torch.randn(3)
    torch.testing.assert_close(f(x), x * 2)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    torch.testing.assert_close(f(x), x * 3)


def test_a_closure_is_guarded() -> None:
    factor = 2.0

    def g(x):
        return x * factor

    f, _ = counted(g)
    x = torch.randn(3)
    torch.testing.assert_close(f(x), x * 2)
    factor = 5.0
    torch.testing.assert_close(f(x), x * 5)


def test_lists_dicts_and_objects_are_guarded() -> None:
    @dataclass
    class Settings:
        scale: float
        steps: list

    def g(x, settings, table):
        for step in settings.steps:
            x = x + step * table["weight"]
        return x * settings.scale

    f, _ = counted(g)
    x, settings, table = torch.randn(3), Settings(2.0, [1, 2]), {"weight": 3}
    torch.testing.assert_close(f(x, settings, table), g(x, settings, table))
    for change in (
        lambda: setattr(settings, "scale", 4.0),
        lambda: settings.steps.append(9),
        lambda: table.update(weight=7),
        lambda: settings.steps.clear(),
    ):
        change()
        torch.testing.assert_close(f(x, settings, table), g(x, settings, table))


def test_aliasing_of_arguments_is_guarded() -> None:
    f, _ = counted(lambda a, b: (a is b, a + b))
    x, y = torch.randn(3), torch.randn(3)
    assert f(x, y)[0] is False
    assert f(x, x)[0] is True
    assert f(x, y)[0] is False


def test_default_dtype_is_guarded() -> None:
    f, _ = counted(lambda x: x + torch.ones(3))
    x = torch.zeros(3)
    assert f(x).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert f(x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert f(x).dtype == torch.float32


def test_after_the_limit_it_runs_eagerly_and_says_so_once() -> None:
    f, graphs = counted(lambda x: x.sin() + 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(1, 15):
            x = torch.randn(n)
            torch.testing.assert_close(f(x), x.sin() + 1)
    assert len(graphs) == 8
    said = [w for w in caught if "recompile_limit" in str(w.message)]
    assert len(said) == 1


def ones(*shape, grad=False, **facts): return torch.ones(shape, **facts).requires_grad_(grad)


DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128)  # fmt: skip
#: Calls that differ in facts of which a program has few.
KINDS = {
    "dtypes": [lambda d=d: (ones(3, dtype=d), 1) for d in DTYPES],
    "ranks": [lambda n=n: (ones(*[2] * n), 1) for n in range(10)],
    "gradients": [lambda d=d, g=g: (ones(3, dtype=d, grad=g), 1) for d in DTYPES[:3] for g in (True, False)],
    "two dtypes": [lambda d=d, e=e: (ones(3, dtype=d), ones(3, dtype=e)) for d in DTYPES[:3] for e in DTYPES[:4]],
}  # fmt: skip


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_facts_that_take_few_values_do_not_use_up_the_limit(kinds) -> None:
    f, graphs = counted(lambda x, y: x * 2 + y)
    with dovetail.config.patch(recompile_limit=4), warnings.catch_warnings():
        warnings.simplefilter("error")
        for arguments in (make() for _ in range(2) for make in kinds):
            torch.testing.assert_close(f(*arguments), arguments[0] * 2 + arguments[1])
    assert len(graphs) == len(kinds)


def test_modes_do_not_use_up_the_limit() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0))
    graphs: list[torch.fx.GraphModule] = []
    compiled = dovetail.compile(model, backend=lambda gm, _: graphs.append(gm) or gm)
    with dovetail.config.patch(recompile_limit=1), warnings.catch_warnings():
        warnings.simplefilter("error")
        for training in (True, False):
            for grad in (True, False):
                with torch.set_grad_enabled(grad):
                    torch.testing.assert_close(compiled.train(training)(ones(2, 3)), model(ones(2, 3)))
    assert len(graphs) == 4


def test_another_kind_has_graphs_of_its_own_after_the_limit() -> None:
    f, graphs = counted(lambda x: x * 2)
    with dovetail.config.patch(recompile_limit=2), pytest.warns(UserWarning, match="recompile_limit"):
        for dtype in DTYPES[:3]:
            for n in range(1, 6):
                torch.testing.assert_close(f(ones(n, dtype=dtype)), ones(n, dtype=dtype) * 2)
    assert len(graphs) == 6


def test_kinds_are_limited_as_well() -> None:
    f, graphs = counted(lambda x: x * 2)
    with dovetail.config.patch(recompile_limit=1), pytest.warns(UserWarning, match="recompile_limit"):
        for dtype in DTYPES:
            torch.testing.assert_close(f(ones(2, dtype=dtype)), ones(2, dtype=dtype) * 2)
    assert len(graphs) == 8


@pytest.mark.parametrize(
    "arguments",
    [{"backend": "indutcor"}, {"mode": "fast"}, {"options": {"no_such_option": 1}}],
    ids=["backend", "mode", "options"],
)
def test_an_unknown_name_lists_the_valid_ones(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"dovetail|max-autotune|recompile_limit"):
        dovetail.compile(torch.sin, **arguments)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
def test_strides_that_all_change(backend):
    compiled = dovetail.compile(lambda x: x[1], backend=backend)
    for x in (torch.randn(4, 4), torch.randn(4, 4).t(), torch.randn(6, 6)[:4, :4].t()):
        assert torch.equal(compiled(x), x[1])


def test_reasons_are_not_looked_for_below_modules_that_have_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Any] = []
    monkeypatch.setattr(explain, "write", lambda guard, writer: looked_at.append(guard) or write(guard, writer))
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(20)))
    f, graphs = counted(model)
    f(torch.randn(2, 4))
    f(torch.randn(3, 4))
    assert len(graphs) == 2 and 0 < len(looked_at) < 10
    looked_at.clear()
    model[3].bias = None
    f(torch.randn(3, 4))
    assert len(graphs) == 3 and len(looked_at) > 20

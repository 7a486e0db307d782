"""`capture_scalar_outputs`: numbers taken out of tensors stay in the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import dovetail

X = torch.linspace(-1, 2, 6)
WHOLE = torch.arange(6)


@pytest.fixture(autouse=True)
def _keep_numbers():
    with dovetail.config.patch(capture_scalar_outputs=True), torch.no_grad():
        yield


def show(x):
    print("loss", x.sum().item())
    return x + 1


WHOLE_GRAPHS: dict[str, Callable[[Any], Any]] = {
    "item": lambda x: x * x.sum().item(),
    "float": lambda x: x + float(x.max()),
    "int": lambda x: (x * int(x.abs().sum()), int(x.max())),
    "arithmetic": lambda x: x * (1 - 2 * x.mean().item()) / (x.max().item() + 3),
    "two": lambda x: x.clamp(x.min().item() + 1, x.max().item() - 1),
    "native functions": lambda x: x * math.sqrt(abs(x.sum().item()) + 1),
    "returned": lambda x: (x + 1, x.sum().item(), {"max": float(x.max())}),
    "list": lambda x: (x * x[:3].tolist()[1], x[:2].tolist()),
    "alpha": lambda x: x.add(x, alpha=x.max().item()),
    "alpha beside float64": lambda x: x.double().add(x.float().sin(), alpha=x.double().mean().item() / 3),
    "text": lambda x: (x + 1, f"{x.sum().item():.2f}"),
    "compared": lambda x: (x + 1, x.sum().item() > 2, x.max().item() == 2.0, x.sum().item() is not None),
    "the larger": lambda x: (x * max(x.sum().item(), x.max().item(), 0.5), min(float(x[0]), float(x[1]))),
    "powers": lambda x: x * x.max().item() ** 2 - (x.sum().item() + 1) ** 3,
    "integers of floats": lambda x: (int(x.abs().sum()) ** 2, x + (int(x.max()) << 2), int(x.max()) & 3 | 8),
    "rounded": lambda x: (round(x.sum().item(), 1), round(x.sum().item()), x + round(float(x.max()), 2)),
    "flags": lambda x: (x * x.any().item(), round((x > 9).any().item(), 1), abs(x.any().item())),
    "chosen": lambda x: (torch.where(x > x.mean().item(), x, x.min().item()), x.masked_fill(x < 0, x.max().item())),
    "tensors compared": lambda x: (x >= x.mean().item(), x.sum().item() < x, x.eq(x.max().item()), x != float(x[0])),
    "inverse": lambda x: (x * (1 / x.sum().item()), 3 / x.max().item() / x.mean().item()),
    "signs of flags": lambda x: (x, x.all().item() | True, -x.any().item(), x.all().item() ^ x.any().item()),
    "sum of all": lambda x: (sum(v.item() for v in x), [v.item() for v in x][1:3], x),
    "answers": lambda x: (torch.equal(x, x * 1), x.allclose(x + 1e-9), torch.is_nonzero(x[0]), x.equal(x[:2]), x + 1),
    "an answer with gaps": lambda x: (torch.allclose(x / x, x / x, equal_nan=True), torch.equal(0 / x, 0 / x), x),
    "a size": lambda x: (x.new_zeros(abs(int(x.max()))) + x.sum(), x + 1),
    "is None": lambda x: x if x.sum().item() is None else x * isinstance(x.sum().item(), (int, float)),
}


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found, expected)
    elif isinstance(expected, (tuple, list)):
        assert type(found) is type(expected) and len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            same(f, e)
    else:
        assert repr(found) == repr(expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
@pytest.mark.parametrize("case", WHOLE_GRAPHS)
def test_one_graph(case: str, backend: str) -> None:
    fn = WHOLE_GRAPHS[case]
    compiled = dovetail.compile(fn, backend=backend, fullgraph=True)
    for x in (X, X * 2, X.flip(0)):
        same(compiled(x), fn(x))
    assert len(compiled._dovetail_dispatcher.entries) == 1


OF_FLOATS = {"native functions", "arithmetic", "the larger", "answers", "chosen", "inverse", "tensors compared"}


@pytest.mark.parametrize("case", sorted(WHOLE_GRAPHS.keys() - OF_FLOATS))
def test_integers(case: str) -> None:
    fn = WHOLE_GRAPHS[case]
    compiled = dovetail.compile(fn, backend="eager", fullgraph=True)
    for x in (WHOLE, WHOLE + 3):
        same(compiled(x), fn(x))


def checked(x):
    n = x.item()
    torch._check(n >= 0)
    return torch.ones(2) * n


def stored(x):
    y = torch.zeros(9)
    y[:x] = 1.0
    return y


AS_SIZES: dict[str, Callable[[Any], Any]] = {
    "checked": checked,
    "zeros": lambda x: torch.zeros(x.item()) + 1,
    "a range": lambda x: torch.arange(x.item()),
    "a part": lambda x: torch.ones(9)[: x.item()],
    "two parts": lambda x: torch.ones(9).split([x.item(), 9 - x.item()]),
    "in a list": lambda x: torch.tensor([x.item(), 4]),
    "alone in a tensor": lambda x: torch.tensor(x.item()) + 1,
    "truth": lambda x: bool(x.item()),
    "truth of a comparison": lambda x: (x + 1, bool(x.item() > 2)),
    "a maximum": lambda x: max(x.item(), 2),
    "a tensor bounds a part": lambda x: torch.ones(3, 9)[:, : x + 1].tanh() * torch.ones(3, 9)[:, : x + 1],
    "a store to a part": stored,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
@pytest.mark.parametrize("case", AS_SIZES)
def test_an_integer_is_a_size_as_well(case: str, backend: str) -> None:
    fn = AS_SIZES[case]
    compiled = dovetail.compile(fn, backend=backend, fullgraph=True)
    for n in (3, 5, 2):
        same(compiled(torch.tensor(n)), fn(torch.tensor(n)))


def test_printed_after_the_graph(capsys: Any) -> None:
    compiled = dovetail.compile(show, backend="eager", fullgraph=True)
    same(compiled(X), X + 1)
    assert capsys.readouterr().out == f"loss {X.sum().item()}\n"


#: What tensors can do in the place of numbers is compiled like everything else; `item` is called on results alone.
WITHOUT_ITEM = "item float arithmetic returned text chosen inverse".split()


@pytest.mark.parametrize("case", WITHOUT_ITEM)
def test_a_number_that_only_meets_tensors_stays_one(case: str) -> None:
    graphs = []
    compiled = dovetail.compile(
        WHOLE_GRAPHS[case], fullgraph=True, backend=lambda graph, inputs: graphs.append(graph.code) or graph
    )
    same(compiled(X), WHOLE_GRAPHS[case](X))
    assert len(graphs) == 1 and ".item()" not in graphs[0]


def asserted(x):
    if x.sum().item() <= 0:  # pytest makes something else of assert statements
        raise AssertionError("not positive")
    return x + 1


def checked_number(x):
    torch._check(x.sum().item() > 0, lambda: "not positive")
    torch._check_value(x.sum().item() != 4)
    return x + 1


def raising(x):
    y = x * 2
    if x.max().item() < 0.5:
        raise ValueError("too small")
    return y


def divided(x):
    y = x * (1 / x.sum().item())
    x.add_(1)
    return y / x.max().item()


def divided_in_a_block(x):
    try:
        return x * (1 / x.mean().item())
    except ZeroDivisionError:
        return x


def effects_before(x):
    x.add_(1)
    if x.sum().item() <= 0:  # pytest makes something else of assert statements
        raise AssertionError("not positive")
    return x + 1


def effects_in_a_graph_before(x):
    x.add_(1)
    y = x * math.floor(x.sum().item()) ** 2
    if y.min() < 0:
        raise ValueError("negative")
    return y


CHECKED = (
    asserted, checked_number, raising, divided, divided_in_a_block, effects_before, effects_in_a_graph_before,
)  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
@pytest.mark.parametrize("fn", CHECKED)
def test_what_a_number_must_be_is_checked_by_the_graph(fn: Any, backend: str) -> None:
    compiled, found = dovetail.compile(fn, backend=backend, fullgraph=True), []
    for x in (X, X - 9, X * 0, X):
        for call in (fn, compiled):
            given = x.clone()
            try:
                found.append((call(given), given))
            except (RuntimeError, ValueError, AssertionError, ZeroDivisionError) as error:
                found.append((type(error), str(error), given))
        same(found[-1], found[-2])


BREAKS: dict[str, Callable[[Any], Any]] = {
    "branch": lambda x: x + 1 if x.sum().item() > 0 else x - 1,
    "truth": lambda x: x + 1 if int(x.max()) else x - 1,
    "key": lambda x: x * {2: 3.0}.get(int(x.max()), 5.0),
    "loop": lambda x: sum([x * k for k in range(int(x.max()))], x),
    "flag": lambda x: x + 1 if bool(x.any().item()) else x - 1,
}


@pytest.mark.parametrize("case", BREAKS)
def test_what_needs_the_value_breaks_the_graph(case: str) -> None:
    fn = BREAKS[case]
    with pytest.raises(dovetail.GraphBreakError):
        dovetail.compile(fn, backend="eager", fullgraph=True)(X)
    compiled = dovetail.compile(fn, backend="eager")
    for x in (X, -X, X * 2, X * 0):
        same(compiled(x), fn(x))


def test_without_the_setting_it_breaks() -> None:
    compiled = dovetail.compile(WHOLE_GRAPHS["item"], backend="eager")
    with dovetail.config.patch(capture_scalar_outputs=False), dovetail.error_on_graph_break(True):
        with pytest.raises(dovetail.GraphBreakError):
            compiled(X)
    with dovetail.config.patch(capture_scalar_outputs=False):  # where no graph may end, numbers stay
        same(dovetail.compile(WHOLE_GRAPHS["item"], backend="eager", fullgraph=True)(X), WHOLE_GRAPHS["item"](X))

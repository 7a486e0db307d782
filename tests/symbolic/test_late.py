"""Sizes that depend on values: one graph, compiled once, right for whatever turns out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import dovetail

ROWS, COLUMNS = 12, 6
ORDER = torch.arange(ROWS)
MASKS = [ORDER % 3 == 1, ORDER < 0, ORDER == 3, ORDER >= 0]
NUMBERS = [torch.tensor(n) for n in (5, 0, 1, 12)]
LENGTHS = [torch.tensor(n) for n in ([3, 9], [0, 12], [11, 1], [6, 6])]
LABELS = [torch.tensor(n) for n in ([1, 2, 2, 3], [1, 1, 1, 1], [4, 5, 6, 7], [0, 9, 9, 0])]
REPEATS = [ORDER * 0 + 3, ORDER * 0, ORDER % 2, ORDER * 0 + 1]


def same(found: Any, expected: Any) -> None:
    """Equal values, and strides where there are elements."""
    if isinstance(expected, (tuple, list)):
        assert type(found) is type(expected) and len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert not expected.numel() or found.stride() == expected.stride()
    else:
        assert type(found) is type(expected) and found == expected


def x() -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS)


def padded(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(2, n.max().item(), COLUMNS)
    for row, part in enumerate(x.split(n.tolist())):
        out[row, : part.shape[0]] = part
    return out


def routed(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for k, chosen in enumerate((m, ~m)):
        rows = chosen.nonzero().squeeze(-1)
        out = out.index_add(0, rows, (x[rows] * (k + 2)).tanh())
    return out


def dealt(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """Experts, each with its part of the rows: what the first joins has a size that is known, and is split again."""
    weights, sizes = torch.linspace(-1, 1, 2 * COLUMNS**2).view(2, COLUMNS, COLUMNS), n.tolist()
    for _ in range(3):
        x = torch.cat([part @ weights[k] for k, part in enumerate(x.split(sizes))])
    return x


def written(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    out[m] = x[m] * 2
    return out


def stated(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n.item()
    torch._check(k <= 12)
    torch._check_is_size(k)
    return x[:k] + 1 if k <= 12 else x


def drawn(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    first = torch.rand(3)
    chosen = x[m]
    return chosen.sum() + first.sum() + torch.rand(2).sum()


#: function, what its second argument is
CASES: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "a mean of chosen rows": (lambda x, m: x[m].mean(), MASKS),
    "chosen rows": (lambda x, m: (x[m] * 2).relu() + 1, MASKS),
    "chosen columns of chosen rows": (lambda x, m: x[m][:, 1:3].sin().sum(1), MASKS),
    "what both choose": (lambda x, m: x[m] + (x * 2)[m], MASKS),
    "masked_select": (lambda x, m: x.masked_select(m[:, None]).sum(), MASKS),
    "nonzero": (lambda x, m: (x[m.nonzero().squeeze(1)].cos().sum(0), m.nonzero()), MASKS),
    "argwhere": (lambda x, m: torch.argwhere(x > 0) * 2, MASKS),
    "where": (lambda x, m: x.index_select(0, torch.where(m)[0]) * 3, MASKS),
    "a view that is returned": (lambda x, m: (y := x[m], y.t(), y[1:]), MASKS),
    "a number of rows": (lambda x, m: (x[m].shape[0], len(x[m]) * 2 + 1, x[m].numel()), MASKS),
    "a mean by hand": (lambda x, m: x[m].sum() / max(x[m].shape[0], 1), MASKS),
    "reshaped": (lambda x, m: (x[m].view(-1, 2, 3) + 1).flatten(1).sum(0), MASKS),
    "cat": (lambda x, m: torch.cat([x[m], x[~m] * 2]).sin(), MASKS),
    "matmul": (lambda x, m: x[m] @ x.t(), MASKS),
    "softmax": (lambda x, m: x[m].softmax(0), MASKS),
    "attention among them": (lambda x, m: torch.softmax(x[m] @ x[m].t(), -1) @ x[m], MASKS),
    "stores to chosen rows": (written, MASKS),
    "routing": (routed, MASKS),
    "random numbers in order": (drawn, MASKS),
    "one after the other": (lambda x, m: (y := x[m])[y[:, 0] > 0].sum(0), MASKS),
    "a single row, repeated": (lambda x, m: x * x[:1].narrow(0, 0, x[:1][m[1:2]].shape[0]), MASKS[:1] + MASKS[3:]),
    "zeros": (lambda x, n: torch.zeros(n.item()) + 1, NUMBERS),
    "columns before one": (lambda x, n: x[:, : n[0]].tanh() + 1, [t[:1] // 2 for t in LENGTHS]),
    "columns on both sides": (lambda x, n: (x[:, : n[0]].tanh(), x[:, n[0] :].sigmoid()), [t // 2 for t in LENGTHS]),
    "the first rows": (lambda x, n: x[: n.item()].cos() * 2, NUMBERS),
    "the last rows": (lambda x, n: x[n.item() :] * 2, NUMBERS),
    "narrow": (lambda x, n: x.narrow(0, 0, n.item()) + 1, NUMBERS),
    "expand": (lambda x, n: x[0].expand(n.item(), COLUMNS) * 2, NUMBERS),
    "stated bounds": (stated, NUMBERS),
    "as many rows": (lambda x, n: x.reshape(n.item(), -1) + 1, [NUMBERS[2], NUMBERS[3], torch.tensor(8)]),
    "a row of few": (lambda x, n: x[:2][n.item()] * 2, [torch.tensor(k) for k in (1, 0)]),
    "a row of those chosen": (lambda x, n: x[x[:, 0] > -99][n] * 2, NUMBERS[:3]),
    "unflatten": (lambda x, n: x.unflatten(0, (n.item(), -1)).sum(1), [torch.tensor(k) for k in (3, 4, 12, 1)]),
    "positions": (lambda x, n: torch.arange(n.max().item())[None] < n[:, None], LENGTHS[:1] + LENGTHS[2:]),
    "split": (lambda x, n: [part.sum(0) for part in x.split(n.tolist())], LENGTHS),
    "parts that are multiplied and joined, again and again": (dealt, LENGTHS),
    "padding": (padded, LENGTHS),
    "repeat_interleave": (lambda x, r: torch.repeat_interleave(x, r, dim=0) * 2, REPEATS),
    "unique": (lambda x, n: torch.unique(n, return_inverse=True, return_counts=True), LABELS),
    "unique rows": (lambda x, n: torch.unique(n.view(2, 2), dim=1)[:, :1] + 1, LABELS),
    "unique in a row": (lambda x, n: n.unique_consecutive() * 2, LABELS),
    "bincount": (lambda x, n: torch.bincount(n).cumsum(0), LABELS),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    dovetail.reset()
    yield
    dovetail.reset()


@pytest.mark.parametrize("name", CASES)
def test_one_graph_serves_every_outcome(name: str) -> None:
    fn, others = CASES[name]
    compiled = dovetail.compile(fn, fullgraph=True)
    for other in others:
        given = x()
        torch.manual_seed(1)
        expected = fn(given, other)
        torch.manual_seed(1)
        same(compiled(given, other), expected)
    assert sum(r.outcome == "compiled" for r in dovetail.explain(fn)(x(), others[0]).records) == 1


TRAINED = [
    "chosen rows", "what both choose", "masked_select", "nonzero", "cat", "routing", "stores to chosen rows", "split",
    "one after the other", "matmul", "the first rows", "repeat_interleave", "a view that is returned", "padding",
    "parts that are multiplied and joined, again and again",
]  # fmt: skip


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_flow_through_them(name: str) -> None:
    fn, others = CASES[name]
    compiled = dovetail.compile(fn, fullgraph=True)
    for other in others:
        given = x().requires_grad_()
        same(_gradient(compiled, given, other), _gradient(fn, given, other))


def _gradient(fn: Callable[..., Any], given: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    found = fn(given, other)
    results = found if isinstance(found, (tuple, list)) else [found]
    total = sum((t * t).sum() for t in results if isinstance(t, torch.Tensor) and t.requires_grad)
    return torch.autograd.grad(total, given)[0]


def test_parts_of_what_parts_were_joined_to() -> None:
    def fn(x, n):
        lengths = [n[k].item() for k in range(3)]
        joined = torch.cat([x[sum(lengths[:k]) : sum(lengths[: k + 1])] for k in range(3)]) + x
        return [part * 2 for part in joined.split(lengths)]

    compiled = dovetail.compile(fn, fullgraph=True, dynamic=True)
    for lengths in ([1, 2, 0], [3, 6, 0], [0, 0, 4]):
        given = torch.randn(sum(lengths), COLUMNS)
        same(compiled(given, torch.tensor(lengths)), fn(given, torch.tensor(lengths)))


def test_sizes_of_inputs_may_be_constants_beside_them() -> None:
    compiled = dovetail.compile(padded, fullgraph=True, dynamic=False)
    for n in LENGTHS:
        given = x()
        same(compiled(given, n), padded(given, n))


def test_a_size_may_vary_beside_them() -> None:
    def fn(x, m):
        return (x[m] * x.shape[0]).sum(0) + x.shape[1]

    compiled = dovetail.compile(fn, fullgraph=True, dynamic=True)
    for rows, columns in ((4, 3), (9, 5), (2, 2), (30, 7)):
        given = torch.randn(rows, columns)
        for mask in (given[:, 0] > 0, given[:, 0] > 9):
            same(compiled(given, mask), fn(given, mask))


def test_the_users_message_is_raised() -> None:
    def fn(x, n):
        k = n.item()
        torch._check(k <= 3, lambda: f"{k} is too many")
        return x[:k] * 2

    compiled = dovetail.compile(fn, fullgraph=True)
    same(compiled(x(), torch.tensor(2)).shape, torch.Size([2, COLUMNS]))
    with pytest.raises(RuntimeError, match="4 is too many"):
        compiled(x(), torch.tensor(4))


def test_nothing_is_written_before_a_size_is_found_to_be_wrong() -> None:
    def fn(x, n):
        x.add_(1)
        return torch.zeros(n.item() - 3), x

    compiled = dovetail.compile(fn, fullgraph=True)
    compiled(x(), torch.tensor(5))
    given = x()
    before = given.clone()
    with pytest.raises(RuntimeError):
        compiled(given, torch.tensor(1))
    same(given, before + 1)


@pytest.mark.parametrize("number", [5, 0, 1, -2, 40])
def test_a_sign_that_was_not_expected_is_eagers(number: int) -> None:
    compiled = dovetail.compile(lambda x, n: x[: n.item()] + 1)
    given = x()
    same(compiled(given, torch.tensor(number)), given[:number] + 1)


def test_where_a_size_decides_the_graph_ends() -> None:
    def fn(x, m):
        y = x[m] + 1
        return y * 2 if y.shape[0] > 1 else y - 1

    compiled = dovetail.compile(fn)
    for mask in MASKS:
        given = x()
        same(compiled(given, mask), fn(given, mask))
    (reason,) = dovetail.explain(fn)(x(), MASKS[0]).break_reasons
    assert "data-dependent-branch" in reason.reason


def test_a_loop_over_one_ends_the_graph() -> None:
    def fn(x, n):
        for _ in range(n.item()):
            x = x * 2
        return x

    compiled = dovetail.compile(fn)
    for number in NUMBERS:
        given = x()
        same(compiled(given, number), fn(given, number))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_backends(backend: str) -> None:
    for fn, others in CASES.values():
        compiled = dovetail.compile(fn, backend=backend, fullgraph=True)
        for other in others:
            given = x()
            torch.manual_seed(1)
            expected = fn(given, other)
            torch.manual_seed(1)
            same(compiled(given, other), expected)


def test_off() -> None:
    with dovetail.config.patch(capture_dynamic_output_shape_ops=False):
        assert dovetail.explain(lambda x, m: x[m] * 2)(x(), MASKS[0]).graph_break_count == 1


def test_an_integer_that_pytorch_reads_from_a_tensor():
    """`view` calls item() by itself, and what it then relies on could not be checked."""

    def halves(x: torch.Tensor) -> torch.Tensor:
        return x.view(torch.div(x.shape[0], 2, rounding_mode="trunc"), 2, -1) * 2

    compiled = dovetail.compile(halves)
    for rows in (12, 6, 4):
        same(compiled(torch.ones(rows, 6)), halves(torch.ones(rows, 6)))


def test_rows_under_numbers_in_tensors() -> None:
    def fn(x, n):
        y = x * 2
        y[n] = x[n, 1:].sum()
        return x[n], y, x[n.item(), n % 3]

    compiled = dovetail.compile(fn, fullgraph=True)
    for number in (1, 0, 11, -1, -12):
        given = x()
        same(compiled(given, torch.tensor(number)), fn(given, torch.tensor(number)))


def test_views_of_an_input_by_such_a_size_are_views() -> None:
    compiled = dovetail.compile(lambda x, n: x[: n.item()], fullgraph=True)
    given = x()
    for number in (3, 5):
        part = compiled(given, torch.tensor(number))
        assert part._base is given
        part.zero_()
        assert not given[:number].any() and given[number:].all()


#: What is done with a number that a tensor holds, and how many graph breaks that takes.
USES: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "arithmetic": (lambda x, n: (n.item() + 1, n.item() * n.item(), -n.item(), n.item() // 2, n.item() % 3), 0),
    "the smaller one": (lambda x, n: (min(n.item(), 3), max(n.item(), x.shape[0]), sum([n.item(), 2])), 0),
    "comparisons": (lambda x, n: (n.item() > 2, n.item() == 1, x[: n.item()].shape[0] <= 12), 0),
    "with tensors": (lambda x, n: (x * n.item(), x + n.item(), x.clamp(max=n.item()), x ** n.item()), 0),
    "as text": (lambda x, n: f"{n.item()} rows", 0),
    "a power that is known": (lambda x, n: (torch.ones(n.item() ** 2), n.item() ** 3), 0),
    "a power": (lambda x, n: torch.ones(2 ** n.item()), 1),
    "bits": (lambda x, n: n.item() | 1, 1),
    "a key": (lambda x, n: {0: 1, 1: 2}.get(n.item(), 3), 1),
    "both at once": (lambda x, n: x if (n.item() > 2) & (n.item() < 9) else x + 1, 2),
    "a condition": (lambda x, n: x if n.item() else x + 1, 1),
    "a dimension": (lambda x, n: x.transpose(0, n.item() % 2), 1),
}


@pytest.mark.parametrize("name", USES)
def test_uses_of_a_number(name: str) -> None:
    fn, breaks = USES[name]
    compiled = dovetail.compile(fn)
    for number in NUMBERS:
        given = x()
        same(compiled(given, number), fn(given, number))
    assert dovetail.explain(fn)(x(), NUMBERS[0]).graph_break_count <= breaks


def test_what_is_told_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    def fn(x, m, n):
        k = n.item()
        torch._check(k <= 3)
        return x[m] * 2, x[:k]

    (told,) = dovetail.explain(fn)(x(), MASKS[0], torch.tensor(2)).sizes
    lines = told.splitlines()
    assert any("what item() finds out" in line and "k = n.item()" in line for line in lines)
    assert any("what a mask finds out" in line and "x[m] * 2" in line for line in lines)
    assert any("<= 3" in line and "torch._check(k <= 3)" in line for line in lines)
    assert any(">= 0" in line and "x[:k]" in line for line in lines)


def test_a_call_with_other_sizes_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    compiled = dovetail.compile(lambda x, m: x[m].squeeze() * 2)
    for mask in (MASKS[0], MASKS[2], MASKS[0]):
        given = x()
        same(compiled(given, mask), given[mask].squeeze() * 2)
    assert not [w for w in recwarn if "dovetail" in str(w.message)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
def test_inputs_written_to_before_a_size_is_found_out(backend: str) -> None:
    def fn(x, n):
        x[: n.item()].mul_(2)
        return x[x[:, 0] > 0].squeeze(), x.add_(1)

    compiled = dovetail.compile(fn, backend=backend)
    for number, shift in ((2, 0), (3, 9), (-1, 0), (2, -9)):
        given = x() + shift
        if number == 3:
            given[1:, 0] = -1
        again = given.clone()
        same(compiled(given, torch.tensor(number)), fn(again, torch.tensor(number)))
        same(given, again)


def test_sizes_that_are_often_other_ones_end_the_graph_after_all() -> None:
    def fn(x, m):
        return x[m].squeeze() * 2

    compiled = dovetail.compile(fn)
    single = torch.arange(ROWS) == 3
    for mask in (MASKS[0], *[single] * 8, MASKS[0]):
        given = x()
        same(compiled(given, mask), fn(given, mask))
    (entry,) = compiled._dovetail_dispatcher.entries
    assert entry.captured.breaks


@pytest.mark.parametrize("shape", [(1,), (0, 3), (1, 1)])
def test_a_shape_states_how_many_elements_there_are(shape: tuple[int, ...]) -> None:
    """However few: eager mode refuses all else, and so does the compiled program."""
    compiled = dovetail.compile(lambda x: x[x > 0].reshape(shape) * 2, fullgraph=True)
    fits, other = torch.ones(math.prod(shape)), torch.ones(2)
    for _ in range(2):
        same(compiled(fits), torch.ones(shape) * 2)
        with pytest.raises(RuntimeError, match="is invalid for input of size 2"):
            compiled(other)


@pytest.mark.filterwarnings("error:dovetail compiles")
def test_a_shape_that_is_made_of_how_many_elements_there_are() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        found = torch.where(x)[1]
        rows = found.reshape(4, found.shape[0] // 4)
        rows.repeat(1, 2)[2 * rows.shape[1] - 1]
        return rows

    compiled = dovetail.compile(fn, dynamic=True)
    for columns in (0, 1, 0):
        x = torch.ones(8, columns)
        same(compiled(x), fn(x))
    with pytest.raises(IndexError):
        compiled(torch.ones(8, 2))


def test_inputs_that_overlap():
    """They go to plain Python as a whole: the operators one by one would find out too late what they rely on."""

    def fn(x, y, rows, place):
        row = rows[2]
        row.squeeze_()
        rows[place] = row
        x.add_(y)
        return row @ x

    def given():
        torch.manual_seed(0)
        memory = torch.randn(4, 4)
        return memory.view(4, 4), memory, torch.randn(3, 4), torch.tensor(0)

    ours, eager = given(), given()
    for _ in range(2):
        torch.testing.assert_close(dovetail.compile(fn)(*ours), fn(*eager))
        torch.testing.assert_close(ours, eager)


def half_of_the_rest(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = x[(x[:, 0] > 0).nonzero().squeeze(1)].reshape(-1)
    rest = found[len(found[found > 9]) :]
    return rest[rest.shape[0] // 2], found.view(1, -1)[:, 0] * 2


def test_an_index_is_checked_before_it_is_read() -> None:
    """That there is a first one follows from a check that comes later, when another size is known too."""
    compiled = dovetail.compile(half_of_the_rest)
    for x in (torch.ones(3, 3), torch.ones(4, 4), -torch.ones(3, 3), torch.ones(3, 3)):
        if x[0, 0] > 0:
            same(compiled(x), half_of_the_rest(x))
        else:
            with pytest.raises(IndexError, match="out of bounds"):
                compiled(x)


def test_what_is_left_for_one_element() -> None:
    """Its only divisor is 1."""
    fn = lambda x: x.unflatten(0, (x[x > 0].shape[0], -1)) + 1
    compiled = dovetail.compile(fn)
    same(compiled(torch.ones(1)), fn(torch.ones(1)))


FINDERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a mask": lambda x: x[x > 2], "masked_select": lambda x: x.masked_select(x > 1), "nonzero": torch.nonzero,
    "unique": lambda x: torch.unique(x, return_counts=True), "bincount": lambda x: torch.bincount(x.view(-1)),
    "repeats": lambda x: torch.repeat_interleave(x.view(-1)), "a number": lambda x: torch.arange(x[0, 0, 0].item()),
}  # fmt: skip


@pytest.mark.parametrize("find", FINDERS.values(), ids=FINDERS)
def test_found_in_what_was_written_in_an_odd_layout(find: Callable[[torch.Tensor], Any]) -> None:
    """The graph's own value is laid out otherwise, and what is found in it is the same size."""

    def fn(x: torch.Tensor) -> Any:
        x.mul_(2)
        y = x[:, :2].add_(1)
        found, part = find(x), find(y)
        return found, part, [t.shape for t in (found if isinstance(found, tuple) else (found,))]

    compiled = dovetail.compile(fn, dynamic=True)
    for seed in range(2):
        torch.manual_seed(seed)
        mine, theirs = (torch.empty_strided((1, 3, 8), (8, 8, 1), dtype=torch.int64) for _ in range(2))
        theirs.copy_(mine.random_(5))
        same(compiled(mine), fn(theirs))
        same(mine, theirs)


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
def test_a_mask_that_is_computed_twice_selects_as_much(backend: str) -> None:
    """Nothing is left to check, so that a graph which writes to its inputs can run one operator after the other."""

    def fn(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        x[~m] += x.add_(1)[~m].sin()
        x[m > 0] += x[m > 0].cos()
        return x * x[(m & m).logical_not()].sum()

    compiled = dovetail.compile(fn, backend=backend, fullgraph=True)
    for mask in MASKS:
        given = x()
        ours, eager = given.clone(), given.clone()
        same(compiled(ours, mask), fn(eager, mask))
        same(ours, eager)


@pytest.mark.parametrize(
    "write", [torch.Tensor.logical_not_, lambda m: m[1:].fill_(True), lambda m: m.view(-1)[0].zero_()]
)
def test_masks_are_no_longer_equal_when_something_has_written(write: Callable[[torch.Tensor], Any]) -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> Any:
        first, second, third = ~m, ~m, ~m
        write(second)
        found = x[first], x[second]
        write(m)
        return *found, x[~m], x[third]

    compiled = dovetail.compile(fn)
    for mask in MASKS:
        given = x()
        same(compiled(given, mask.clone()), fn(given, mask.clone()))

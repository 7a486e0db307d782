"""Sizes that change: how many compilations they cost, who may say what of them, and what is told about it."""

from __future__ import annotations

import copy
from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

import dovetail
from dovetail import building
from dovetail.errors import SpecializedDimension
from dovetail.ir.guard import GuardKind

SIZES = ((2, 3), (4, 5), (6, 7), (3, 3), (9, 2))


def entries(compiled: Any) -> int:
    return len(compiled._dovetail_dispatcher.entries)


def compiled(fn: Callable[..., Any], **options: Any) -> Any:
    return dovetail.compile(fn, backend="eager", **options)


def count(fn: Callable[..., Any], calls: Iterable[tuple[Any, ...]], **options: Any) -> int:
    """The entries that these calls need, each equal to eager."""
    ours = compiled(fn, **options)
    for args in calls:
        torch.testing.assert_close(ours(*args), fn(*args), rtol=0, atol=0)
    return entries(ours)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + x.shape[0]


def test_one_more_compilation_serves_every_size() -> None:
    assert count(doubled, [(torch.randn(*size),) for size in SIZES]) == 2


@pytest.mark.parametrize(("dynamic", "wanted"), [(True, 1), (False, len(SIZES))])
def test_at_once_or_never(dynamic: bool, wanted: int) -> None:
    assert count(doubled, [(torch.randn(*size),) for size in SIZES], dynamic=dynamic) == wanted


def test_the_setting() -> None:
    with dovetail.config.patch(dynamic_shapes=False):
        assert count(doubled, [(torch.randn(*size),) for size in SIZES]) == len(SIZES)


def test_only_what_changed_is_free() -> None:
    ours = compiled(doubled)
    for size in SIZES:
        ours(torch.randn(size[0], 3))
    (guard,) = [g for g in ours._dovetail_dispatcher.entries[0].guards if g.kind is GuardKind.TENSOR]
    assert guard.payload.sizes == (None, 3)


def test_inside_containers_and_of_many_arguments() -> None:
    def fn(d, *more):
        return d["a"][0] * d["b"] + sum(m.sum() for m in more)

    calls = [({"a": [torch.randn(n)], "b": torch.randn(n)}, torch.randn(n + 1), torch.randn(3, n)) for n in (2, 3, 5)]
    assert count(fn, calls) == 2


def test_sizes_that_were_equal_are_one_and_may_part() -> None:
    fn = lambda x, y: (x * 2, y + x.shape[0] - y.shape[0])
    assert count(fn, [(torch.randn(n, 2), torch.randn(n, 3)) for n in (2, 3, 4, 5)]) == 2
    calls = [(torch.randn(n, 2), torch.randn(m, 3)) for n, m in ((2, 2), (3, 3), (4, 5), (6, 7))]
    assert count(fn, calls) == 3


def test_a_graph_break_costs_no_compilation_for_the_rest() -> None:
    def fn(x, rows):
        kept = [x * 2, rows[0] + 1]
        n = x.shape[0]
        dovetail.graph_break()
        return kept[0] + kept[1] + n

    ours = compiled(fn)
    for size in SIZES:
        x, rows = torch.randn(*size), [torch.randn(*size)]
        torch.testing.assert_close(ours(x, rows), fn(x, rows))
    (rest,) = ours._dovetail_dispatcher.compiler.rests.values()
    assert entries(ours) == 2 and len(rest.entries) == 2


def test_attributes_of_a_module() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept, self.seen = torch.zeros(1), 0

        def forward(self, x):
            self.seen += x.shape[0]
            total = x * 2 + self.kept
            self.kept = x
            return total, self.seen

    ours, theirs = Counting(), Counting()
    run = compiled(ours)
    for n in (1, 1, 2, 2, 3, 3, 4, 4):
        x = torch.randn(n)
        ours.kept, theirs.kept = x + 1, x + 1
        torch.testing.assert_close(run(x), theirs(x))
        assert ours.seen == theirs.seen and type(ours.seen) is int
    assert entries(run) <= 3


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n: x[x.shape[0] - n :] + 1, lambda x, n: x[: 3 - n] * 2, lambda x, n: x[n - 4 :: 2].exp(),
        lambda x, n: torch.nn.functional.pad(x, (n, 1)), lambda x, n: torch.nn.functional.pad(x.repeat(2), (n, 1)),
    ],
)  # fmt: skip
def test_bounds_that_are_negative_and_empty_dimensions(fn: Callable[..., Any]) -> None:
    ours = dovetail.compile(fn)
    for size, n in ((5, 3), (6, 4), (3, 1), (0, 2), (7, 5), (4, 6), (1, 1)):
        x = torch.randn(size)
        torch.testing.assert_close(ours(x, n), fn(x, n))
    assert entries(ours) <= 6


# ---------------------------------------------------------------- marks


def test_marked_dimensions_are_free_at_once() -> None:
    x = torch.randn(4, 5)
    dovetail.mark_dynamic(x, 0)
    assert count(doubled, [(x,), (torch.randn(9, 5),), (torch.randn(2, 5),)]) == 1
    dovetail.maybe_mark_dynamic(y := torch.randn(4, 5), 1)
    assert count(doubled, [(y,), (torch.randn(4, 9),)]) == 1


def test_bounds_are_guarded() -> None:
    ours, x = compiled(doubled), torch.randn(4, 5)
    dovetail.mark_dynamic(x, 0, min=2, max=8)
    for n in (2, 8):
        ours(x)
        ours(torch.randn(n, 5))
    assert entries(ours) == 1
    ours(torch.randn(9, 5))
    assert entries(ours) == 2


def test_a_static_dimension_stays_one() -> None:
    calls = [torch.randn(n, 5) for n in (2, 3, 4)]
    for x in calls:
        dovetail.mark_static(x)
    assert count(doubled, [(x,) for x in calls]) == 3


def test_marks_that_pytorchs_compiler_is_told() -> None:
    """`torch._dynamo.mark_dynamic(x, 0, min=2, max=9)` and `mark_static(y, 0)`, by what they leave."""
    x, bounds = torch.randn(4, 5), namedtuple("Bounds", "dim min max")(0, 2, 9)
    x._dynamo_dynamic_indices, x._dynamo_dynamic_range = {0}, {bounds}
    assert count(doubled, [(x,), (torch.randn(9, 5),), (torch.randn(2, 5),)]) == 1
    for name in ("_dynamo_unbacked_indices", "_dynamo_strict_unbacked_indices", "_dynamo_weak_dynamic_indices"):
        setattr(z := torch.randn(4, 5), name, {0})
        assert count(doubled, [(z,), (torch.randn(9, 5),), (torch.randn(2, 5),)]) == 1
    fixed = [torch.randn(n, 5) for n in (2, 3, 4)]
    for y in fixed:
        y._dynamo_static_indices = {0}
    assert count(doubled, [(y,) for y in fixed]) == 3


def looped(x: torch.Tensor) -> torch.Tensor:
    for k in range(x.shape[0]):
        x = x + k
    return x


def test_a_mark_that_the_program_breaks_is_an_error_with_the_line() -> None:
    x = torch.randn(4, 5)
    dovetail.mark_dynamic(x, 0)
    with pytest.raises(SpecializedDimension, match=r"x\.shape\[0\] is marked dynamic.*constant 4 by") as error:
        compiled(looped)(x)
    assert "for k in range(x.shape[0])" in str(error.value)
    dovetail.maybe_mark_dynamic(y := torch.randn(4, 5), 0)
    assert torch.equal(compiled(looped)(y), looped(y))


# ---------------------------------------------------------------- what is told


def test_a_miss_names_the_size_and_the_line() -> None:
    def fn(x):
        if x.shape[0] >= 4:
            return x * 2
        return x * 3

    ours = compiled(fn)
    for n in (5, 6):
        ours(torch.randn(n))
    (failed,) = ours._dovetail_dispatcher.entries[0].failures((torch.randn(3),), {})
    assert str(failed).startswith("x.shape[0] >= 4 (actual: x.shape[0] is 3)  # ") and __file__ in str(failed)


def test_the_log_shows_symbols_and_what_is_relied_on(caplog: pytest.LogCaptureFixture) -> None:
    ours = compiled(looped)
    with caplog.at_level("INFO", "dovetail.dynamic"):
        for n in (2, 3):
            ours(torch.randn(n))
    told = caplog.text
    assert "s0: x.shape[0], = 3" in told and "relies on x.shape[0] == 3" in told and "for k in range" in told


def test_a_mistake_with_symbolic_sizes_costs_compilations_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(program: Any, options: Any) -> Any:
        if any(not isinstance(n, int) for b in program.inputs for n in b.sizes):
            raise AssertionError("a mistake")
        return schedule(program, options)

    schedule = building.schedule
    monkeypatch.setattr(building, "schedule", refuse)
    ours = dovetail.compile(lambda x: x * 2)
    ours(torch.randn(3))
    sees = pytest.warns(UserWarning, match=r"constant sizes, since schedule failed.*a mistake \(dovetail/building.py:")
    with dovetail.config.patch(strict=False), sees:
        torch.testing.assert_close(ours(torch.ones(4)), torch.full((4,), 2.0))
    assert entries(ours) == 2


def test_so_does_one_with_sizes_that_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(aten: Any) -> Any:
        assert in_stages(aten) is None, "a mistake"

    in_stages = building.in_stages
    monkeypatch.setattr(building, "in_stages", refuse)
    x, fn = torch.randn(5), lambda x: x[x > 0] * 2
    sees = pytest.warns(UserWarning, match="without them, since .* failed with sizes that are found out.*a mistake")
    with dovetail.config.patch(strict=False), sees:
        torch.testing.assert_close(dovetail.compile(fn)(x), fn(x))


def test_a_view_beyond_the_end_of_memory_of_any_size_is_refused() -> None:
    fn = lambda x, n: (x + 1).as_strided((n,), (1,))
    ours = compiled(fn)
    for size in (4, 5, 6):
        torch.testing.assert_close(ours(torch.arange(size), size), torch.arange(size) + 1)
    for size in (4, 5, 6):
        with pytest.raises(RuntimeError, match="out of bounds"):
            ours(torch.arange(size), size + 1)


def test_copies_are_laid_out_as_what_they_copy() -> None:
    fn = lambda x: copy.deepcopy(x.relu()).stride()
    assert count(fn, [(torch.randn(*size),) for size in SIZES]) == 2


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.reshape(x.shape[0], x.shape[2]).flip(0).permute(1, 0).reshape(-1),
        lambda x: x.permute(2, 0, 1).reshape(x.shape[0] * x.shape[2], x.shape[1]),
        lambda x: x.transpose(0, 1).contiguous().flatten(0, 1),
    ],
)
def test_views_of_nothing(fn: Callable[..., Any]) -> None:
    calls = [(torch.randn(n, n, k).requires_grad_(),) for n, k in ((1, 6), (0, 6), (1, 0), (0, 0), (1, 3))]
    assert count(fn, calls, dynamic=True) <= len(calls)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("rank", [2, 3])
def test_images_sampled_on_grids_of_any_size(rank: int, align: bool) -> None:
    fn = lambda x, grid: torch.nn.functional.grid_sample(x, grid, align_corners=align)
    ours = dovetail.compile(fn)
    for batch, size in ((2, 3), (3, 4), (1, 5), (4, 2)):
        given = torch.randn(batch, 3, *range(size, size + rank)), torch.randn(batch, *range(size, size + rank), rank)
        found = []
        for each in (ours, fn):
            leaves = [t.clone().requires_grad_() for t in given]
            y = each(*leaves)
            found.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
        torch.testing.assert_close(*found)
    assert entries(ours) == 2


def test_kronecker_products_of_any_size() -> None:
    matrices = [(torch.randn(n, m), torch.randn(2, n)) for n, m in SIZES]
    assert count(torch.kron, matrices) == 2
    assert count(torch.kron, [(torch.randn(n), torch.randn(2, n, m)) for n, m in SIZES]) == 2
    assert count(torch.kron, [(torch.randn(n, m, 2), torch.randn(n)) for n, m in SIZES]) == 2


WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "rows moved down": lambda x: x[1:].copy_(x[:-1]),
    "rows added to the next": lambda x: x[1:].add_(x[:-1]),
    "a store": lambda x: x.__setitem__(slice(1, None), x[:-1]),
    "columns moved": lambda x: x[:, 1:].copy_(x[:, :-1]),
    "the same rows": lambda x: x[1:].add_(x[1:]),
    "the other half": lambda x: x[: x.shape[0] // 2].add_(x[x.shape[0] // 2 :][: x.shape[0] // 2]),
    "every other row": lambda x: x[1::2].add_(x[: x.shape[0] - 1 : 2]),
    "a transposed matrix": lambda x: x[:, : x.shape[0]].add_(x[:, : x.shape[0]].t()),
    "its own memory": lambda x: (y := x.clone(), y[1:].mul_(y[:-1]), y)[2],
}  # fmt: skip


#: Where PyTorch does not see the overlap, what comes out depends on the order in which it goes through the elements.
ORDERED = ("columns moved", "a transposed matrix")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
@pytest.mark.parametrize("name", WRITES)
def test_writes_to_a_part_of_what_is_read(name: str, backend: str) -> None:
    ours = dovetail.compile(WRITES[name], backend=backend, dynamic=True)
    for rows, columns in ((6, 6), (4, 7), (4, 4), (1, 5), (1, 1), (2, 1), (2, 2), (0, 3), (8, 8)):
        found = []
        for fn in (ours, WRITES[name]):
            x = torch.arange(float(rows * columns)).reshape(rows, columns)
            try:
                fn(x)
                found.append(x.shape if name in ORDERED else x.tolist())
            except RuntimeError as error:
                found.append(str(error))
        assert found[0] == found[1], (rows, columns)

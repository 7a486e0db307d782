"""Views: as indices for loops, as strides for libraries, as aliases for callers."""

from __future__ import annotations

import pytest
import torch

from dovetail.ir.loops import Group, View
from tests.ops.checking import check, lowered

VIEWS = {
    "t": lambda x: x.t(), "transpose": lambda x: x.transpose(0, 1), "permute": lambda x: x[None].permute(2, 0, 1),
    "view_split": lambda x: x.view(2, 2, 6), "view_merge": lambda x: x.view(24), "view_regroup": lambda x: x.view(8, 3),
    "view_odd": lambda x: x.view(3, 8), "view_ones": lambda x: x.view(1, 4, 1, 6, 1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:1].squeeze(), "squeeze_dim": lambda x: x[:1].squeeze(0), "select": lambda x: x[2],
    "select_last": lambda x: x[:, -1], "slice": lambda x: x[1:3], "slice_step": lambda x: x[::2, 1::3],
    "slice_beyond": lambda x: x[2:100], "slice_negative": lambda x: x[-3:-1], "slice_empty": lambda x: x[3:1],
    "expand": lambda x: x[:, :1].expand(4, 5), "expand_new": lambda x: x.expand(2, 4, 6),
    "diagonal": lambda x: x.diagonal(), "diagonal_up": lambda x: x.diagonal(2),
    "diagonal_down": lambda x: x.diagonal(-1),
    "unfold": lambda x: x.unfold(1, 3, 2), "narrow": lambda x: x.narrow(1, 2, 3), "detach": lambda x: x.detach(),
    "split": lambda x: x.split(4, 1), "chunk": lambda x: x.chunk(3, 1), "unbind": lambda x: x.unbind(0),
    "split_sizes": lambda x: x.split([1, 5], 1), "as_strided": lambda x: x.as_strided((3, 2), (2, 5), 1),
    "flatten": lambda x: x[None].flatten(1), "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "movedim": lambda x: x.movedim(0, 1),
    "slice_of_transpose": lambda x: x.t()[1:4].t(), "select_of_view": lambda x: x.view(2, 2, 6)[:, 1],
    "view_of_slice": lambda x: x[1:3].view(3, 4), "transpose_of_expand": lambda x: x[:1].expand(3, 6).t(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_loops_read_views_by_index(name):
    def fn(x):
        views = VIEWS[name](x + 1)
        return [v * 2 for v in views] if isinstance(views, (tuple, list)) else views * 2

    check(fn, torch.randn(4, 6), loops=True)


@pytest.mark.parametrize("name", VIEWS)
def test_libraries_read_views_by_strides(name):
    def fn(x):
        views = VIEWS[name](x + 1)
        return [v.cumsum(0) for v in (views if isinstance(views, (tuple, list)) else (views,))]

    program = check(fn, torch.randn(4, 6), loops=False)
    assert sum(isinstance(item, Group) for item in program.items) == 1, "a strided view was copied"


def test_a_view_is_made_once():
    program = lowered(lambda x: ((x + 1).t().cumsum(0), (x + 1).t().cumsum(1)), torch.randn(3, 4))
    assert sum(isinstance(item, View) for item in program.items) == 2
    program = lowered(lambda x: (lambda t: (t.cumsum(0), t.cumsum(1)))((x + 1).t()), torch.randn(3, 4))
    assert sum(isinstance(item, View) for item in program.items) == 1


def test_a_reshape_that_strides_cannot_describe_is_copied_only_for_libraries():
    x = torch.randn(4, 6)
    check(lambda a: (a + 1).t().reshape(24) * 2, x, loops=True)
    check(lambda a: (a + 1).t().reshape(24).cumsum(0), x, loops=False)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 3)], ids=str)
def test_views_of_nothing(shape):
    check(lambda x: ((x + 1).view(0, 7), x.flatten() + 1, x[None] * 2, x.view(0, 5)), torch.randn(shape))


def test_bits_as_another_dtype():
    check(lambda x: (x * 2).view(torch.int32) + 1, torch.randn(5), loops=True)
    check(lambda x: x.view(torch.int32), torch.randn(5))
    check(lambda x: (x * 2).view(torch.int16), torch.randn(5))
    check(lambda x: x.view(torch.int16), torch.randn(5))


def test_views_of_complex_tensors():
    check(lambda x: torch.view_as_complex(x + 1), torch.randn(5, 2))
    check(lambda x: torch.view_as_real(x * 2) + 1, torch.randn(5, dtype=torch.complex64))
    check(lambda x: (x * 2).t()[1:].reshape(-1), torch.randn(3, 4, dtype=torch.complex64))


def test_views_that_libraries_make_begin_where_their_argument_does():
    for dtype, fn in (
        (torch.complex64, lambda x: torch.view_as_real(x)[:, 1] @ torch.ones(5)),
        (torch.complex64, lambda x: torch.view_as_real(x)[1:, 1].cumsum(0)),
        (torch.float32, lambda x: x.view(torch.int16)[::2].cumsum(0)),
    ):
        memory = torch.randn(12, dtype=dtype)
        check(fn, memory[2:7])
        if dtype is torch.complex64:
            check(fn, memory[1:11:2])


def test_operators_that_count_from_the_start_of_a_storage():
    def scatter(x, y):
        part = (x * 3)[1:]
        return torch.as_strided_scatter(part, y + 1, (2, 2), (1, 3), 2), (x + y.sum()).sin()

    check(scatter, torch.randn(4, 4), torch.randn(2, 2))
    check(lambda x, y: torch.as_strided_scatter(x * 3, y, (2, 2), (1, 3), 0), torch.randn(16), torch.randn(2, 2))


def test_copies_of_views_of_types_without_loops():
    x = torch.randn(3, 4, dtype=torch.complex64)
    check(lambda a: (torch.t_copy(a), torch.narrow_copy(a, 1, 1, 2), torch.unbind_copy(a)), x)
    check(lambda a: torch.expand_copy(a, (2, 3, 4)), x)
    check(lambda a: torch.as_strided_copy(a * 2, (2, 2), (1, 3), 1), x)


def test_two_outputs_of_one_memory_stay_so():
    program = lowered(lambda x: (lambda y: (y, y.t()))(x + 1), torch.randn(3, 4))
    whole, view = (o.value for o in program.outputs)
    assert [item for item in program.items if isinstance(item, View)] == [View(view, whole)]


def test_results_that_eager_owns_do_not_alias_inputs():
    x = torch.randn(3, 4)
    program = lowered(lambda a: (a.clone(), a.t().contiguous(), a.flip(0), a.repeat(2, 1), a.roll(1, 0)), x)
    assert all(o.value.kind != "input" for o in program.outputs)

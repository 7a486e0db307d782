"""Operators that PyTorch takes apart in ways of its own, and those whose schema keeps something back."""

from __future__ import annotations

import pytest
import torch

from dovetail.errors import Unsupported
from tests.normalize.harness import check, functional
from tests.versions import since

X = torch.rand(4, 6)


@pytest.mark.parametrize("fn", [
    lambda x: torch.unsafe_split(x, 2, 1), lambda x: torch.unsafe_chunk(x, 3, 1),
    lambda x: torch.unsafe_split_with_sizes(x, (1, 3, 2), 1), lambda x: torch.unsafe_chunk(x * 2, 2),
])  # fmt: skip
@pytest.mark.parametrize("x", [X, X.t().contiguous().t(), torch.rand(4, 12)[:, ::2]], ids=["rows", "columns", "sliced"])
def test_unsafe_splits_are_views_all_the_same(fn, x):
    check(fn, x)


def test_writing_to_an_unsafe_split_reaches_the_whole():
    def fn(x):
        torch.unsafe_split(x, 2, 1)[1].mul_(3)
        return x + 1

    check(fn, X)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_polygamma_in_place(n):
    check(lambda x: x.polygamma_(n), X, exact=False)


def test_a_written_temporary_changes_shape_in_place():
    def fn(x):
        y = x.sum(1, keepdim=True)
        y.mul_(2).add_(1)
        y.squeeze_(1)
        return y, x * y[:, None]

    check(fn, X)


def test_a_part_of_several_results_changes_shape_in_place():
    def fn(x):
        values, places = x.sort(dim=1)
        values.add_(1)
        values.t_()
        places.unsqueeze_(0)
        return values, places

    check(fn, X)


@since(12, "PyTorch 2.11 reads the quantiles as Python numbers to check them")
@pytest.mark.parametrize("fn", [torch.quantile, torch.nanquantile])
@pytest.mark.parametrize("dim, keepdim", [(None, False), (1, True), (0, False)])
def test_quantiles(fn, dim, keepdim):
    check(lambda x: fn(x, 0.4, dim=dim, keepdim=keepdim), X, exact=False)


@pytest.mark.parametrize("fn", [
    lambda x, out: torch.sum(x, 0, out=out[0]), lambda x, out: torch.complex(x, x, out=out.to(torch.complex128)),
])  # fmt: skip
def test_an_out_of_another_dtype_is_for_eager(fn):
    with pytest.raises(Unsupported, match="out-dtype"):
        functional(fn, X, X.double())


def test_element_wise_results_are_converted_to_the_dtype_of_out():
    check(lambda x, out: torch.add(x, x, out=out), X, X.double())

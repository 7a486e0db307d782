"""Results that are remembered are those that would be found again."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.ops.fake import FakeMode, result_cache, to_fake

aten = torch.ops.aten


def fake(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return to_fake(torch.empty(sizes, dtype=dtype))


def test_one_search_for_all_that_are_alike():
    table = result_cache.table_of(aten.add.Tensor)
    table.clear()
    with FakeMode():
        first, again = (torch.add(fake(3, 5), fake(5)) for _ in range(2))
        other = torch.add(fake(3, 5).t(), fake(3))
    assert first is not again and first.stride() == again.stride() == (5, 1) and first._owner is None
    assert other.shape == (5, 3) and other.stride() == (1, 5)
    assert len(table) == 2


def test_numbers_and_the_default_dtype_count():
    with FakeMode():
        x = fake(2, dtype=torch.int64)
        assert [(x * n).dtype for n in (2, 2.0, True, 2j)] == [(torch.ones(2, dtype=torch.int64) * n).dtype
                                                             for n in (2, 2.0, True, 2j)]
        torch.set_default_dtype(torch.float64)
        try:
            assert (x * 2.0).dtype is torch.float64
        finally:
            torch.set_default_dtype(torch.float32)


def test_in_place_gives_the_argument():
    with FakeMode():
        for _ in range(2):
            x = fake(4)
            assert x.add_(fake(4), alpha=2) is x and x._version == 1


@pytest.mark.parametrize("name", "neg_ reciprocal_ sqrt_ rsqrt_ abs_ sign_ exp_".split())
def test_in_place_of_one_tensor(name):
    table = result_cache.table_of(getattr(aten, name).default)
    table.clear()
    with FakeMode():
        for _ in range(2):
            x = fake(3, 4)
            assert getattr(x, name)() is x and x._version == 1
            with pytest.raises(RuntimeError, match="more than one element"):
                getattr(fake(1).expand(4), name)()
    assert len(table) == 1


@pytest.mark.parametrize("others", (0, 1))
def test_what_is_refused_is_refused_after_what_is_not(others):
    """The same metadata, but other memory."""
    with FakeMode():
        for _ in range(2):
            whole = fake(6)
            whole[:4].add_(fake(6)[2:] if others else whole[:4])
            with pytest.raises(RuntimeError, match="single memory location"):
                whole[:4].add_(whole[2:])
            with pytest.raises(RuntimeError):
                fake(4).add_(fake(5))
            with pytest.raises(RuntimeError, match="more than one element"):
                fake(1).expand(4).add_(fake(4))


def test_symbolic_sizes_are_not_remembered():
    before = {func: len(result_cache.table_of(func)) for func in (aten.mul.Tensor,)}

    compiled = dovetail.compile(lambda x: x * x, dynamic=True, fullgraph=True)
    for n in (3, 7):
        torch.testing.assert_close(compiled(torch.full((n,), 2.0)), torch.full((n,), 4.0))
    assert {func: len(result_cache.table_of(func)) for func in before} == before


def test_views_beside_what_is_written():
    """A gradient that is a transposed product changes nothing; a part of the written tensor does."""
    with FakeMode():
        for _ in range(2):
            own, gradient = fake(4, 4), fake(4, 4).t()
            assert own.lerp_(gradient, 0.5) is own
            with pytest.raises(RuntimeError, match="single memory location"):
                own.view(-1)[:8].add_(own.view(-1)[4:12])

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


PARTS = {
    "view": lambda x: x.view(3, 8),
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(1, 0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[None].squeeze(0),
    "expand": lambda x: x[:1].expand(3, 6),
    "select": lambda x: x[1],
    "slice": lambda x: x[1:3],
    "unbind": lambda x: x.unbind(1)[2],
    "split": lambda x: x.split(4, 1)[1],
    "split_with_sizes": lambda x: x.split([1, 3])[1],
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_lie_where_their_tensor_does(name):
    def looks(x):
        part = PARTS[name](x)
        if 0 not in part.stride():
            part.detach().zero_()
        base = x if x._base is None else x._base
        layout = part.shape, part.stride(), part.storage_offset()
        return *layout, part.dtype, part.is_conj(), part._base is base, x._version

    whole = torch.zeros(5, 6)
    kinds = (
        lambda: whole[:4].clone(), lambda: whole[1:].detach(), lambda: whole[:4].to(torch.complex64),
        lambda: whole[:4].to(torch.complex64).conj(),
    )  # fmt: skip
    for make in kinds:
        expected = looks(make())
        for _ in range(2):
            with FakeMode():
                x = to_fake(make())
                assert looks(x) == expected
                assert PARTS[name](x).owner is x


def test_a_write_to_a_part_that_is_remembered_shows_in_the_whole():
    def fn(x):
        y = x.clone()
        for k in range(3):
            y[k].view(2, 2).t().add_(k + 1.0)
        first, second = y.unbind(1)[:2]
        first.mul_(second)
        return y

    x = torch.randn(3, 4)
    torch.testing.assert_close(dovetail.compile(fn, fullgraph=True)(x), fn(x))


def test_products_and_attention_of_other_types_and_layouts():
    """Whatever the result depends on is part of what it is remembered by."""
    def results():
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            a, b = torch.zeros(2, 3, 4, 8, dtype=dtype), torch.zeros(4, 2, 3, 8, dtype=dtype).permute(1, 2, 0, 3)
            yield from (a[0, 0] @ b[0, 0].t(), torch.addmm(a[0, 0, 0, :4], a[0, 0], b[0, 0].t()), a[0].bmm(b[0].mT))
            yield from (a.mean(1), b.mean((1, 2), True), b.sum(2), a.sum(1, dtype=torch.float64), b.softmax(-1))
            yield from (torch.nn.functional.layer_norm(x, x.shape[2:]) for x in (a, b))
            yield torch.nn.functional.scaled_dot_product_attention(a, b, b)
            yield torch.nn.functional.embedding(torch.zeros(2, 3, dtype=torch.int64), a[0, 0])

    expected = [(r.shape, r.stride(), r.dtype) for r in results()]
    for _ in range(2):
        with FakeMode():
            assert [(r.shape, r.stride(), r.dtype) for r in results()] == expected


def test_products_that_are_refused_are_refused_after_those_that_are_not():
    with FakeMode():
        for _ in range(2):
            fake(3, 4) @ fake(4, 5)
            with pytest.raises(RuntimeError, match="cannot be multiplied"):
                fake(3, 4) @ fake(3, 5)
            with pytest.raises(RuntimeError):
                fake(3, 4) @ fake(4, 5, dtype=torch.float64)
            with pytest.raises(RuntimeError, match="view size is not compatible"):
                fake(4, 3).t().view(12)
            with pytest.raises(RuntimeError, match="more than one element"):
                fake(1).expand(4).add_(1.0)

"""Odd tensors give what eager gives; wrong ones raise what eager raises."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import dovetail

from .checking import raises_like_eager, same

INF, NAN = float("inf"), float("nan")
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-45, -1e-45, 3.4e38, -3.4e38, 88.8, -104.0, 1e5, -1e5])


def chain(x):
    return torch.sigmoid(x) * torch.tanh(x) + F.gelu(x)


def rows(x):
    return torch.softmax(x, -1) + x.mean(-1, keepdim=True)


UNARY = (
    "exp", "expm1", "log", "log1p", "log2", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "tanh", "erf",
    "sigmoid", "relu", "abs", "sign", "floor", "ceil", "round", "trunc", "neg", "isnan", "isinf", "isfinite", "square",
)  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_special_values(name: str) -> None:
    same(getattr(torch, name), SPECIAL)


# Eager's vectorised remainder by a denormal number is NaN, by eager's own scalar code 0: nothing to agree with.
NORMAL = SPECIAL[SPECIAL.abs() != 1e-45]
PAIRS = dict.fromkeys(["maximum", "minimum", "pow", "div", "atan2", "eq", "lt", "fmax"], SPECIAL)
PAIRS |= dict.fromkeys(["fmod", "remainder"], NORMAL)


@pytest.mark.parametrize("name", PAIRS)
def test_special_pairs(name: str) -> None:
    a, b = torch.meshgrid(PAIRS[name], PAIRS[name], indexing="ij")
    same(getattr(torch, name), a.contiguous(), b.contiguous())


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "argmax", "argmin", "prod", "any", "all", "var"])
def test_reductions_of_special_values(name: str) -> None:
    same(lambda x: getattr(x, name)(-1), torch.stack([SPECIAL, SPECIAL.flip(0), torch.zeros_like(SPECIAL)]))


def test_softmax_of_infinities() -> None:
    x = torch.tensor([[1.0, INF, 2.0], [-INF, -INF, -INF], [-INF, 0.0, 1.0], [NAN, 0.0, 1.0]])
    same(lambda x: torch.softmax(x, -1), x)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (3, 0), (2, 0, 4), (1, 1), (7,), (3, 5, 7)])
def test_sizes(shape: tuple[int, ...]) -> None:
    same(chain, torch.randn(shape))


@pytest.mark.parametrize("shape", [(1,), (0, 3), (1, 1), (7,), (5, 1), (3, 5, 7), (2, 1025)])
def test_sizes_of_rows(shape: tuple[int, ...]) -> None:
    same(rows, torch.randn(shape))


STRIDES = {
    "transposed": lambda: torch.randn(6, 4).t(),
    "every other": lambda: torch.randn(6, 8)[:, ::2],
    "expanded": lambda: torch.randn(6, 1).expand(6, 5),
    "expanded number": lambda: torch.tensor(2.0).expand(3, 4),
    "offset": lambda: torch.randn(40)[7:31].view(4, 6),
    "overlapping windows": lambda: torch.randn(20).unfold(0, 6, 2),
    "overlapping by strides": lambda: torch.randn(20).as_strided((5, 5), (1, 2)),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "permuted": lambda: torch.randn(3, 4, 5).permute(2, 0, 1),
    "flipped": lambda: torch.randn(4, 5).flip(0),
}


@pytest.mark.parametrize("layout", STRIDES)
@pytest.mark.parametrize("fn", [chain, rows], ids=["pointwise", "rows"])
def test_layouts(fn, layout: str) -> None:
    x = STRIDES[layout]()
    got = same(fn, x)
    if fn is chain and layout in ("channels last", "transposed", "permuted"):
        assert got.stride() == fn(x).stride()


def test_the_same_tensor_twice() -> None:
    x = torch.randn(4, 4)
    same(lambda a, b: a * b + a, x, x)
    same(lambda a, b: a @ b, x, x.t())


def test_a_result_that_is_an_input_is_that_input() -> None:
    x = torch.randn(3)
    assert same(lambda t: (t, t + 1), x)[0] is x


def test_a_result_that_is_a_view_shares_memory() -> None:
    x = torch.randn(4, 6)
    got = same(lambda t: t[1:3].t(), x)
    assert got.data_ptr() == x[1:3].data_ptr()
    assert got.stride() == x[1:3].t().stride()


DTYPES = [
    torch.float16, torch.bfloat16, torch.float64, torch.bool,
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_promote_as_in_eager(dtype: torch.dtype) -> None:
    def f(a, b):
        return a + 1, a * 2.5, a + b, a / 2, a.float() * b, a == 1, a.sum(), torch.where(a > 0, b, 1)

    same(f, torch.randint(0, 2, (3, 9)).to(dtype), torch.randn(9))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32], ids=str)
def test_integers_wrap_as_in_eager(dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    x = torch.tensor([limits.min, limits.max, 0, 1, 7], dtype=dtype)
    same(lambda a: (a + a, a * 3, -a, a // 3, a % 5, a.abs(), a.sum(), a << 1), x)


def test_wrong_shapes() -> None:
    raises_like_eager(lambda a, b: a + b, torch.randn(3), torch.randn(4))
    raises_like_eager(lambda a, b: a @ b, torch.randn(3, 4), torch.randn(3, 4))
    raises_like_eager(lambda a: a.view(5), torch.randn(4))
    raises_like_eager(torch.nn.Linear(3, 2), torch.randn(2, 4))


def test_wrong_dtypes() -> None:
    raises_like_eager(lambda a, b: a @ b, torch.randn(2, 2), torch.ones(2, 2, dtype=torch.int64))
    raises_like_eager(torch.nn.Embedding(4, 2), torch.randn(3))
    raises_like_eager(lambda a: a << 1, torch.randn(3))


def test_wrong_arguments() -> None:
    raises_like_eager(lambda a: a, torch.randn(3), torch.randn(3))
    raises_like_eager(lambda a: a.sum(7), torch.randn(3))
    raises_like_eager(lambda a: torch.cat([a, "text"]), torch.randn(3))


def test_index_out_of_range() -> None:
    raises_like_eager(torch.nn.Embedding(4, 2), torch.tensor([0, 9]))
    raises_like_eager(lambda a, i: torch.gather(a, 0, i), torch.randn(3), torch.tensor([5]))
    raises_like_eager(lambda a, i: a[i], torch.randn(3), torch.tensor([-4]))


def test_a_failed_call_leaves_the_next_one_intact() -> None:
    f = dovetail.compile(lambda a, b: torch.relu(a) + b)
    with pytest.raises(RuntimeError):
        f(torch.randn(3), torch.randn(4))
    a, b = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(f(a, b), torch.relu(a) + b)

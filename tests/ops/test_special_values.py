"""Zeros of either sign, infinities, NaN and subnormal numbers through every elementwise operator of the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dovetail
from tests import databases
from tests.versions import VERSION

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TOGETHER = 24  # so many operators are one compiled function

#: Operators with numbers for which zeros are special.
WITH_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "clamp(min=0)": lambda x: x.clamp(min=0), "clamp(min=-0.0)": lambda x: x.clamp(min=-0.0),
    "clamp(max=0)": lambda x: x.clamp(max=0), "clamp(max=-0.0)": lambda x: x.clamp(max=-0.0),
    "clamp(0, 0)": lambda x: x.clamp(0, 0), "clamp(-0.0, 6)": lambda x: x.clamp(-0.0, 6),
    "hardtanh(0, 6)": lambda x: F.hardtanh(x, 0.0, 6.0), "threshold": lambda x: F.threshold(x, 0.0, -0.0),
    "leaky_relu(0)": lambda x: F.leaky_relu(x, 0.0), "+ 0": lambda x: x + 0.0, "+ -0": lambda x: x + -0.0,
    "0 -": lambda x: 0.0 - x, "-0 -": lambda x: -0.0 - x, "* 0": lambda x: x * 0, "/ 0": lambda x: x / 0,
    "** 3": lambda x: x**3, "** -1": lambda x: x**-1, "** 0.5": lambda x: x**0.5, "% 2": lambda x: x % 2,
    "% -2": lambda x: x % -2, "// -2": lambda x: x // -2, "round(1)": lambda x: x.round(decimals=1),
    "nan_to_num(-0)": lambda x: x.nan_to_num(-0.0), "where": lambda x: torch.where(x > 0, x, 0.0),
}  # fmt: skip

#: What is made of columns, where each row is one element: a sum starts at 0.0, which -0.0 does not make -0.0.
OF_ONE: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(1), "sum, kept": lambda x: x.sum(1, keepdim=True), "sum of all": lambda x: x[:1].sum(),
    "sum of a scalar": lambda x: x[5, 0].sum(), "sum as another type": lambda x: x.sum(1, dtype=torch.float64),
    "mean": lambda x: x.mean(1), "nansum": lambda x: x.nansum(1), "prod": lambda x: x.prod(1),
    "cumsum": lambda x: x.cumsum(1), "cumprod": lambda x: x.cumprod(1), "logsumexp": lambda x: x.logsumexp(1),
    "norm": lambda x: x.norm(dim=1), "cubes": lambda x: torch.linalg.vector_norm(x, 3, dim=1),
    "inverses": lambda x: torch.linalg.vector_norm(x, -1, dim=1), "count": lambda x: x.norm(0, dim=1),
    "length of one": lambda x: x[9].norm(), "amin": lambda x: x.amin(1), "logcumsumexp": lambda x: x.logcumsumexp(1),
    "einsum": lambda x: torch.einsum("ij->i", x), "diagonal": lambda x: x.diagonal().sum(0), "trace": torch.trace,
    "pooled": lambda x: F.adaptive_avg_pool1d(x, 1), "of two": lambda x: x.expand(-1, 2).sum(1),
    "broadcast": lambda x: (x + torch.zeros(1, 1, 1, dtype=x.dtype) * 0).sum_to_size(len(x), 1),
}

#: What eager has no kernels for in some versions.
NOT_YET = {("trace", torch.float16), ("trace", torch.bfloat16)} if VERSION < (2, 13) else set()

#: C's fmax and fmin may give either zero, and eager's kernels for this type give another than those for the rest.
EITHER_ZERO = {("fmax", torch.bfloat16), ("fmin", torch.bfloat16)}


#: The database seeds it through a switch of PyTorch's that ends graphs.
RANDOM = {"nn.functional.rrelu"}


def _values(dtype: torch.dtype) -> torch.Tensor:
    facts = torch.finfo(dtype)
    positive = [0.0, float("inf"), facts.smallest_normal / 2, facts.tiny, 0.5, 1.0, 1.5, 2.5, 6.0, facts.max]
    return torch.tensor([*positive, *(-v for v in positive), float("nan")], dtype=dtype)


def _operators(kind: str, dtype: torch.dtype) -> list[tuple[str, Callable[..., Any]]]:
    database = databases.load("common_methods_invocations")
    chosen = (o for o in database.op_db if isinstance(o, getattr(database, kind)) and dtype in o.dtypes)
    return [(o.formatted_name, o.op) for o in chosen if o.name not in RANDOM]


def _runs(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> bool:
    try:
        return isinstance(function(*inputs), torch.Tensor)
    except (RuntimeError, TypeError, AssertionError):
        return False


def _alike(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where the results are of one kind: NaN, an infinity, a zero of one sign, or none of these."""
    if left.is_complex():
        return _alike(torch.view_as_real(left), torch.view_as_real(right)).all(-1)
    if not left.is_floating_point():
        return left == right
    zeros = (left == 0) & (right == 0)
    same = torch.signbit(left) == torch.signbit(right)
    return (left.isnan() == right.isnan()) & (left.isinf() == right.isinf()) & (~zeros | same)


def _compare(operators: list[tuple[str, Callable[..., Any]]], inputs: tuple[torch.Tensor, ...]) -> list[str]:
    """What differs. Eager's result may depend on the place in the tensor: what it gives for one element will do too."""
    wrong = []
    usable = [(name, f) for name, f in operators if _runs(f, inputs) and (name, inputs[0].dtype) not in EITHER_ZERO]
    for k in range(0, len(usable), TOGETHER):
        several = usable[k : k + TOGETHER]
        compiled = dovetail.compile(lambda *given, several=several: [f(*given) for _, f in several], fullgraph=True)
        for (name, f), got in zip(several, compiled(*inputs), strict=True):
            want = f(*inputs)
            assert got.dtype == want.dtype and got.shape == want.shape, name
            for place in (~_alike(got, want)).nonzero().flatten().tolist():
                one = tuple(given[place : place + 1] for given in inputs)
                if not _alike(got[place : place + 1], f(*one)).all():
                    shown = [given[place].item() for given in inputs]
                    wrong.append(f"{name}{shown}: {got[place].item()}, in eager mode {want[place].item()}")
    return wrong


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
def test_one_operand(dtype: torch.dtype) -> None:
    operators = [*_operators("UnaryUfuncInfo", dtype), *WITH_NUMBERS.items()]
    assert len(operators) > 60
    assert not _compare(operators, (_values(dtype),))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
def test_two_operands(dtype: torch.dtype) -> None:
    values = _values(dtype)
    operators = _operators("BinaryUfuncInfo", dtype)
    assert len(operators) > 30
    assert not _compare(operators, (values.repeat_interleave(len(values)), values.repeat(len(values))))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
def test_reductions_of_one_element(dtype: torch.dtype) -> None:
    x = _values(dtype)[:, None].contiguous()
    for name, f in OF_ONE.items():
        for dynamic in (False, True) if (name, dtype) not in NOT_YET else ():
            got = dovetail.compile(f, dynamic=dynamic)(x)
            assert _alike(got, f(x)).all(), (name, dynamic)


PRODUCTS: dict[str, Callable[..., Any]] = {
    "mm": torch.mm,
    "linear": lambda a, b: F.linear(a, b.mT),
    "mv": lambda a, b: a[:1].mT @ b[0, :1],
    "bmm": lambda a, b: torch.bmm(a.expand(2, -1, -1), b.expand(2, -1, -1)),
    "addmm": lambda a, b: torch.addmm(torch.full((b.size(1),), -0.0), a, b),
}


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_one_term(name: str, columns: int) -> None:
    x, ones = _values(torch.float32)[:, None].contiguous(), torch.ones(1, columns)
    for given in (x, x[:1], -x[:1]):
        assert _alike(dovetail.compile(PRODUCTS[name])(given, ones), PRODUCTS[name](given, ones)).all()


@pytest.mark.parametrize("over", [torch.softmax, torch.log_softmax, torch.logsumexp])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_scores_are_lost_beside_the_least_number(over, dtype):
    """So rows that a mask hides with it are means; float32 would keep what the scores of float16 differ by."""
    scores, hidden = torch.randn(6, 40).to(dtype), torch.rand(6, 40) < 0.4
    hidden[2] = True

    def fn(scores):
        return over(scores * 2 + torch.zeros_like(scores).masked_fill(hidden, torch.finfo(dtype).min), -1)

    torch.testing.assert_close(dovetail.compile(fn)(scores), fn(scores))

"""NumPy programs as graphs: values, dtypes, scalars, memory shared and changed are NumPy's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import dovetail
from dovetail.capture.driver import capture
from dovetail.errors import Unsupported
from tests.versions import since

from .harness import OPTIONS, enter

RANDOM = np.random.default_rng(0)
x = RANDOM.standard_normal((3, 4))
ARRAYS = {
    "x": x, "y": x.astype("f4") + 1, "h": x.astype("f2"), "i": np.arange(12).reshape(3, 4), "b": x > 0, "c": x + 2j * x,
    "u": np.arange(12, dtype="u1").reshape(3, 4), "v": RANDOM.standard_normal(5),
    "sq": RANDOM.standard_normal((3, 3)) + 3 * np.eye(3),
}  # fmt: skip
NAMES = ", ".join(ARRAYS)


def made(text: str) -> Callable[..., Any]:
    """`text` as the body of a function of all arrays; its lines are separated by semicolons."""
    *before, last = text.split("; ")
    lines = [*before, last if last.startswith("return") or before else f"return {last}"]
    space = {"np": np, "torch": torch}
    exec(f"def f({NAMES}):\n    " + "\n    ".join(lines), space)
    return space["f"]  # type: ignore[return-value]


def same(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected):
            same(a, e)
    elif type(expected) is float:
        assert actual == pytest.approx(expected)
    elif getattr(expected, "dtype", None) is not None and expected.dtype.kind == "U":
        np.testing.assert_array_equal(actual, expected)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        rough = expected.dtype.itemsize <= 2
        np.testing.assert_allclose(actual, expected, rtol=5e-3 if rough else 1e-5, atol=5e-3 if rough else 1e-6)
    else:
        assert actual == expected


def check(text: str) -> None:
    """One graph, which gives and changes what NumPy does."""
    ours, theirs, fn = copy.deepcopy(ARRAYS), copy.deepcopy(ARRAYS), made(text)
    captured = capture(fn, tuple(ours.values()), {}, OPTIONS)
    same(enter(captured, fn, tuple(ours.values()), {}), fn(*theirs.values()))
    same(list(ours.values()), list(theirs.values()))


UNARY = """sin cos tan exp log1p sqrt abs negative sign floor ceil rint trunc square reciprocal isnan isfinite isinf
    exp2 expm1 arctan sinh cosh tanh arcsinh deg2rad rad2deg fabs positive signbit invert logical_not conjugate real
    imag"""
REDUCTIONS = "sum prod mean std var max min argmax argmin any all cumsum ptp count_nonzero"
SHAPES = """ravel transpose flip fliplr flipud diff sort squeeze copy zeros_like ones_like triu tril diagonal trace
    nan_to_num round shape ndim size atleast_1d atleast_3d rot90 asarray array iscomplexobj"""


def supported(text: str) -> bool:
    try:
        made(text)(*copy.deepcopy(ARRAYS).values())
    except (TypeError, ValueError):
        return False
    return True


@pytest.mark.parametrize("name", UNARY.split())
@pytest.mark.parametrize("array", "xyhiv")
def test_elementwise(name: str, array: str) -> None:
    if supported(f"np.{name}({array})"):
        check(f"np.{name}({array})")


@pytest.mark.parametrize("name", (REDUCTIONS + " " + SHAPES).split())
@pytest.mark.parametrize("array", "xyiv")
def test_reductions_and_shapes(name: str, array: str) -> None:
    if supported(f"np.{name}({array})") and (array, name[:3]) != ("v", "tri"):
        check(f"np.{name}({array})")


@pytest.mark.parametrize("sign", "+ - * / ** < <= == != > >=".split())
@pytest.mark.parametrize("left", "xyi")
def test_operators(sign: str, left: str) -> None:
    for right in ("x", "y", "h", "i", "2", "2.5", "True", "np.float32(2)", "np.int8(3)", "np.float64(1.5)"):
        if sign != "**" or (left, right) not in {("i", "i"), ("i", "h")}:
            check(f"{left} {sign} {right}")
        if sign != "**":
            check(f"{right} {sign} {left}")


EXPRESSIONS = """
x[0] | x[-1] | x[:, 1] | x[1:, ::2] | x[::-1] | x[:, ::-1] | x[..., 0] | x[None] | x[[0, 2]] | x[np.array([0, 1])]
x[0, 1] | x[...] | x.shape | x.dtype | x.size | x.ndim | x.nbytes | x.itemsize | x.strides | x.T
x.astype(np.float32) | x.astype(int) | x.astype('f8') | x.reshape(4, 3) | x.reshape(-1) | x.swapaxes(0, 1)
x.clip(0, 1) | x.repeat(2) | x.dot(x.T) | x.sum(axis=(0, 1)) | x.max(1) | x.take([0, 1]) | len(x) | [r for r in x]
x.dtype == np.float64 | x.dtype.kind | isinstance(x, np.ndarray) | x is x | x.real | -x | abs(x) | ~b | divmod(x, 2)
x.astype(bool) | x.mean(axis=-1, keepdims=True) | np.concatenate([x, x]) | np.stack([x, x], axis=1)
np.vstack([x, x]) | np.hstack((x, x)) | np.split(x, 2, axis=1) | np.array_split(x, 3) | np.where(b, x, 0)
np.clip(x, -1, 1) | np.clip(x, None, 0.5) | np.maximum(x, 0) | np.minimum(x, y) | np.power(x, 2) | np.dot(x, x.T)
np.matmul(x, x.T) | np.einsum('ij,kj->ik', x, x) | np.outer(v, v) | np.inner(v, v) | np.kron(v, v) | np.linalg.norm(x)
np.linalg.norm(x, axis=1) | np.linalg.inv(sq) | np.linalg.det(sq) | np.linalg.solve(sq, sq) | np.linalg.slogdet(sq)
np.linalg.pinv(sq) | np.linalg.matrix_power(sq, 3) | np.linalg.qr(sq) | np.zeros((2, 3))
np.ones(3, dtype=np.float32) | np.full((2, 2), 7) | np.full((2, 2), 7.5) | np.eye(3) | np.arange(5)
np.arange(0, 1, 0.1) | np.linspace(0, 1, 5) | np.array([1, 2, 3]) | np.array([[1.5, 2], [3, 4]]) | np.array([x, x])
np.array(3) | np.array(x) | np.asarray([1, 2], dtype='f4') | np.array([1e12, 0.1]) | np.meshgrid(v, v) | np.tile(x, 2)
np.repeat(x, 2, axis=0) | np.roll(x, 1) | np.expand_dims(x, 0) | np.moveaxis(x, 0, 1) | np.take(x, [0, 1], axis=1)
np.isclose(x, x) | np.cumsum(x, axis=1) | np.fft.fft(v) | np.fft.rfft(v) | np.float32(3)
np.float64(2.5) * x | np.pi * x | np.sqrt(2) * x | np.sqrt(x.shape[0]) * x | np.finfo(x.dtype).eps
np.iinfo(np.int32).max | np.sum(x, dtype=np.float32) | np.mean(i) | np.mean(i, dtype=np.float32) | np.std(x, ddof=1)
np.var(x, axis=0, keepdims=True) | np.hypot(x, x) | np.add(x, 1, out=x) | np.multiply(x, x, out=x)
np.float32(x.sum()) | x.sum().astype(np.float32) | np.array([x[0, 0], 1.5]) | np.exp(-x**2 / 2) / np.sqrt(2 * np.pi)
b ** 2 | i / i.max() | (x - x.mean()) / x.std() | i // 3 | i % 5 | x // 0.5
"""
PROGRAMS = """
x += 1; return x
x *= y; return x
x[0] = 5; return x
x[:, 1] += 2; return x
x[b] = 0; return x
a = x[0]; a += 1; return x
a = x[0, 0]; x += 1; return a
a = x.astype(x.dtype); a += 1; return x, a
a = x.flatten(); a += 1; return x
a = x.ravel(); a += 1; return x
a = np.positive(x); a += 1; return x
a = np.conj(x); a += 1; return x
a = x.conj(); a += 1; return x
a = x.T; a[0] = 1; return x
a = np.array(x); a += 1; return x
a = np.asarray(x); a += 1; return x, a is x
a = np.sum(x); q = a; a += 1; return a, q
out = np.zeros_like(x); out[:] = x; out[1:] -= x[:-1]; return out
i += 1; i *= 2; return i
x -= x.mean(axis=0); x /= x.std(axis=0)
x.fill(3)
x.sort()
np.copyto(x, 0)
np.fill_diagonal(sq, 0)
t = torch.from_numpy(x); t.mul_(2); return x
t = torch.from_numpy(x); x += 1; return t.numpy()
t = torch.tensor(y); t += 1; return y, t.numpy()
t = torch.as_tensor(y, dtype=torch.float64); t += 1; return y, t.numpy()
return torch.from_numpy(x).sin().numpy() + np.cos(x)
m, sd = x.mean(), x.std(); return (x - m) / sd
x[0], x[1] = x[1].copy(), x[0].copy(); return x
w = np.zeros(3); w[1] = 4; return w
"""


@pytest.mark.parametrize("text", [e.strip() for e in EXPRESSIONS.replace("\n", " | ").split(" | ") if e.strip()])
def test_expressions(text: str) -> None:
    check(text)


@since(12, "PyTorch 2.11 reads the quantiles as Python numbers to check them")
def test_a_median_along_an_axis() -> None:
    check("np.median(x, axis=0)")


@pytest.mark.parametrize("text", PROGRAMS.strip().splitlines())
def test_programs(text: str) -> None:
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        "np.add.reduce(x)", "np.cbrt(x)", "i // i", "2 // i", "i ** i", "np.nonzero(x)", "x[b]", "np.sum(u)",
        "np.cumsum(b)", "x[2:0:-1]", "np.median(x)", "x.astype('U8')", "x.view(np.matrix)",
        "x.tolist()", "np.pad(x, 1)", "np.ma.array(x).sum()", "np.poly1d([1, 2])(x)", "x.flat[0]", "x.ctypes.data * 0",
        "x.sum() > 0 and x.max()", "float(x.sum())", "np.vectorize(abs)(x)", "f'{x.sum():.3f}'", "np.longdouble(2) * x",
    ],
)  # fmt: skip
def test_what_numpy_does_itself_breaks_the_graph(text: str) -> None:
    fn = made(text)
    with pytest.raises(Unsupported):
        capture(fn, tuple(copy.deepcopy(ARRAYS).values()), {}, OPTIONS)
    same(dovetail.compile(fn)(*copy.deepcopy(ARRAYS).values()), fn(*copy.deepcopy(ARRAYS).values()))


def test_breaks_between_array_operations() -> None:
    def fn(a):
        total = float((a * 2).sum())
        return a * total + np.random.rand(3).sum() * 0

    compiled = dovetail.compile(fn)
    for _ in range(3):
        a = np.random.randn(3)
        np.testing.assert_allclose(compiled(a), fn(a))


def test_one_array_given_twice() -> None:
    def fn(a, b):
        a += 1
        return b * 2

    compiled, a = dovetail.compile(fn), np.ones(3)
    assert compiled(a.copy(), a).sum() == 6 and compiled(a, a).sum() == 12 and compiled(a, a[:]).sum() == 18


LAYOUTS = [lambda a: a[::-1], lambda a: a.astype(">f8"), lambda a: a.astype("f4"), np.asfortranarray]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_layouts_of_an_array(layout: Callable[[Any], Any]) -> None:
    compiled = dovetail.compile(lambda a: a * 2)
    for a in (np.ones((2, 3)), layout(np.arange(6.0).reshape(2, 3)), np.ones((2, 3))):
        np.testing.assert_array_equal(compiled(a), a * 2)


def test_a_read_only_array_stays_one() -> None:
    def fn(a):
        a += 1

    compiled, a = dovetail.compile(fn), np.ones(3)
    compiled(a)
    a.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        compiled(a)


def test_arrays_of_a_module_and_of_globals() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k = np.ones(2, "f4")

        def forward(self, t):
            return t * torch.from_numpy(self.k) + torch.as_tensor(GLOBAL)

    module, t = Scaled(), torch.ones(2)
    compiled = dovetail.compile(module)
    assert compiled(t).tolist() == [2, 2]
    module.k[0], GLOBAL[1] = 5, 3
    assert compiled(t).tolist() == [6, 4]
    module.k = np.zeros(2)
    assert compiled(t).tolist() == [1, 3] and compiled(t).dtype is torch.float64
    GLOBAL[1] = 1


GLOBAL = np.ones(2, "f4")


def test_wrap_numpy_takes_and_gives_tensors_in_containers() -> None:
    fn = dovetail.wrap_numpy(lambda parts, scale=1: {"sum": np.add(*parts) * scale, "n": len(parts)})
    parts = [torch.ones(2), torch.ones(2)]
    for wrapped in (fn, dovetail.compile(fn, fullgraph=True)):
        given = wrapped(parts, scale=3)
        assert given["n"] == 2 and given["sum"].tolist() == [6, 6]


def test_an_object_that_keeps_an_entry_behind_a_property() -> None:
    class Kept:
        def __init__(self, value):
            self.__dict__["value"] = value

        @property
        def value(self):
            return self.__dict__["value"]

    assert dovetail.compile(lambda t: Kept(t + 1), fullgraph=True)(torch.ones(2)).value.tolist() == [2, 2]


def entries(fn: Callable[..., Any], *calls: Any) -> int:
    """How many graphs these calls compile; their results are NumPy's."""
    made: list[Any] = []

    def backend(module: Any, inputs: Any) -> Any:
        made.append(module)
        return module.forward

    compiled = dovetail.compile(fn, backend=backend)
    for call in calls:
        same(compiled(*call), fn(*call))
    return len(made)


@pytest.mark.parametrize("scalar", [float, np.float64, np.float32])
@pytest.mark.parametrize("fn", [lambda a, s: a * s + 1, lambda a, s: np.maximum(a, s) ** s - s / 2])
def test_a_number_that_changes_becomes_an_input(fn: Callable[..., Any], scalar: type) -> None:
    for dtype in ("f4", "f8", "i8"):
        assert entries(fn, *((np.arange(4).astype(dtype), scalar(k + 0.5)) for k in range(10))) == 2


def test_a_sum_that_outlives_a_break_becomes_an_input() -> None:
    look = dovetail.disable(lambda a: None)

    def fn(a):
        total = np.sum(a)
        look(a)
        return a / total

    assert entries(fn, *((np.arange(4.0) + k,) for k in range(10))) == 3


BESIDE = [lambda t, s: t * s, lambda t, s: torch.clamp(t, s), lambda t, s: t * 2 if s > 2 else t + float(s)]


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("fn", BESIDE)
def test_a_numpy_number_that_changes_beside_a_tensor(fn: Callable[..., Any], kind: torch.dtype) -> None:
    compiled, t = dovetail.compile(fn, fullgraph=kind.is_floating_point), torch.ones(3, dtype=kind)
    for k in range(4):
        given, wanted = compiled(t, np.float64(k + 0.5)), fn(t, np.float64(k + 0.5))
        assert given.dtype is wanted.dtype
        torch.testing.assert_close(given, wanted)


def methods_of_a_number(a):
    number = a[0]
    return number.tolist(), number.item(), number.round(1), number.astype("f8"), number.nbytes, str(number)


def test_a_break_at_a_method_of_a_numpy_number() -> None:
    array = np.array([1.25, 2.5], dtype=np.float32)
    assert dovetail.compile(methods_of_a_number, backend="eager")(array) == methods_of_a_number(array)


@pytest.mark.parametrize("text", ("a[n]", "a[n, 0]", "a[0, n]", "a[0, 0, n]", "a.__setitem__(n, 1)"))
def test_an_index_out_of_bounds_is_numpys_error(text: str) -> None:
    space: dict[str, Any] = {}
    exec(f"def f(a, n):\n    try: return {text}\n    except IndexError as error: return str(error)", space)
    compiled = dovetail.compile(space["f"], backend="eager", fullgraph=True)
    for n in (5, 6, 7, -9):
        array = np.arange(12.0).reshape(3, 4)
        assert compiled(array, n) == space["f"](array.copy(), n)


def test_scalars_that_vary_and_are_one_object():
    compiled = dovetail.compile(lambda x, a, b: (x + 1, a + b))
    for numbers in ((np.float64(2),) * 2, (np.float64(1),) * 2, (np.float64(1), np.float64(3)), (np.float64(4),) * 2):
        _, total = compiled(torch.ones(2), *numbers)
        assert total == sum(numbers)
        assert type(total) is np.float64

"""Reductions over inner, outer and all ranges; row groups; local buffers; checks."""

from __future__ import annotations

import pytest
import torch

from dovetail.codegen.cpu import Processor
from dovetail.ir import dims
from dovetail.ir.loops import Buffer, Check, Const, Group, Index, Load, Local, Loop, Op, Reduce, Store
from dovetail.ir.ranges import new_range
from tests.codegen.harness import CPU, buffer, compare, op, run

KINDS = {
    "sum": (torch.float32, torch.float64, torch.int64), "prod": (torch.float64, torch.int32),
    "min": (torch.float32, torch.int8, torch.uint8, torch.int64),
    "max": (torch.float64, torch.float32, torch.int16, torch.bool),
    "any": (torch.bool,), "all": (torch.bool,),
    "argmin": (torch.float32, torch.int64, torch.uint8), "argmax": (torch.float64, torch.int32, torch.bool),
}  # fmt: skip
CASES = [(kind, dtype) for kind, dtypes in KINDS.items() for dtype in dtypes]


def _values(shape, dtype):
    if dtype == torch.bool:
        return torch.rand(shape) > 0.3
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=dtype)
    return torch.randint(0 if dtype == torch.uint8 else -5, 6, shape, dtype=dtype)


def _result_dtype(kind, dtype):
    return torch.int64 if kind.startswith("arg") or (kind in ("sum", "prod") and not dtype.is_floating_point) else dtype


def reduction(x, kind, axes, out):
    """Group of `out = reduce(x, axes)`; the reduced ranges are inner."""
    index = tuple(new_range(f"i{k}", n) for k, n in enumerate(x.shape))
    inner = tuple(index[a] for a in axes)
    outer = tuple(r for k, r in enumerate(index) if k not in axes)
    result = out.dtype
    value = Load(buffer("x", x), index)
    if result != x.dtype and not kind.startswith("arg"):
        value = Op("cast", (value,), result)
    return Group("g", outer, (
        Loop(inner, (Reduce("r", kind, value, result),)),
        Loop((), (Store(buffer("out", out, "output"), outer, Local("r", result)),)),
    ))  # fmt: skip


@pytest.mark.parametrize(("kind", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("axes", [(1,), (0,), (0, 1), (0, 2), (1, 2), (0, 1, 2)], ids=str)
def test_reduce(kind, dtype, axes):
    for shape in ((5, 7, 33), (3, 70, 4)):
        x = _values(shape, dtype)
        if kind == "prod" and dtype.is_floating_point:
            x = x.abs() ** 0.01
        out = torch.empty([n for k, n in enumerate(shape) if k not in axes], dtype=_result_dtype(kind, dtype))
        compare(reduction(x, kind, axes, out), {"x": x, "out": out}, ["out"], tolerance=1e-5)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 63, 64, 65, 127, 200, 4095, 4096, 4097, 10000])
@pytest.mark.parametrize("target", [Processor(64, True), Processor(32, False), Processor(16, False)])
def test_row_lengths(n, target):
    x, out = torch.randn(3, n), torch.empty(3)
    for kind in ("sum", "max"):
        compare(reduction(x, kind, (1,), out), {"x": x, "out": out}, ["out"], tolerance=1e-5, target=target)


@pytest.mark.parametrize("kind", ["min", "max", "argmin", "argmax"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_nan_wins(kind, axes):
    x = torch.randn(40, 50)
    x[::3, ::7] = float("nan")
    x[20:, 30] = float("nan")
    out = torch.empty([n for k, n in enumerate(x.shape) if k not in axes], dtype=_result_dtype(kind, x.dtype))
    compare(reduction(x, kind, axes, out), {"x": x, "out": out}, ["out"])


@pytest.mark.parametrize("kind", ["argmin", "argmax"])
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), 0.0, float("nan")])
def test_first_of_equals(kind, value):
    x, out = torch.full((3, 100), value), torch.empty(3, dtype=torch.int64)
    assert run(reduction(x, kind, (1,), out), {"x": x, "out": out}) == 0
    assert (out == 0).all()


@pytest.mark.parametrize(("kind", "empty"), [("sum", 0.0), ("prod", 1.0)])
def test_empty_reduction(kind, empty):
    x, out = torch.randn(3, 0), torch.full((3,), 7.0)
    assert run(reduction(x, kind, (1,), out), {"x": x, "out": out}) == 0
    assert (out == empty).all()


def test_empty_result():
    x, out = torch.randn(0, 3), torch.empty(0)
    assert run(reduction(x, "sum", (1,), out), {"x": x, "out": out}) == 0


@pytest.mark.parametrize("axes", [(1,), (0,), (0, 1)], ids=str)
def test_long_float32_sums_are_as_accurate_as_eagers(axes):
    x = torch.rand(500, 3000) + 100
    out = torch.empty([n for k, n in enumerate(x.shape) if k not in axes])
    assert run(reduction(x, "sum", axes, out), {"x": x, "out": out}) == 0
    exact = x.double().sum(axes)
    ours, eager = (out.double() - exact).abs().max(), (x.sum(axes).double() - exact).abs().max()
    assert ours <= eager + exact.abs().max() * 2**-24


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for axes in ((1,), (0,), (0, 1)):
            x = torch.randn(1500, 1001)
            out = torch.empty([n for k, n in enumerate(x.shape) if k not in axes])
            compare(reduction(x, "sum", axes, out), {"x": x, "out": out}, ["out"], tolerance=2e-4)
            big = torch.empty([n for k, n in enumerate(x.shape) if k not in axes], dtype=torch.int64)
            compare(reduction(x, "argmax", axes, big), {"x": x, "out": big}, ["out"])
    finally:
        torch.set_num_threads(before)


def softmax(x, out, scratch=False):
    """Row softmax; with `scratch` the exponentials are kept in a local buffer."""
    rows, n = x.shape
    i, j = new_range("i", rows), new_range("j", n)
    load = Load(buffer("x", x), (i, j))
    shifted = op("exp", op("sub", load, Local("m", torch.float32)))
    local = Buffer("row", torch.float32, CPU, (n,), (1,), 0, "local")
    middle: tuple = (Reduce("s", "sum", shifted, torch.float32),)
    again = shifted
    if scratch:
        middle = (Store(local, (j,), shifted), *middle)
        again = Load(local, (j,))
    return Group("softmax", (i,), (
        Loop((j,), (Reduce("m", "max", load, torch.float32),)),
        Loop((j,), middle),
        Loop((j,), (Store(buffer("out", out, "output"), (i, j), op("div", again, Local("s", torch.float32))),)),
    ), (local,) if scratch else ())  # fmt: skip


@pytest.mark.parametrize("scratch", [False, True])
@pytest.mark.parametrize("shape", [(4, 10), (3, 64), (5, 1000), (700, 129)])
def test_softmax(shape, scratch):
    x, out = torch.randn(shape) * 5, torch.empty(shape)
    assert run(softmax(x, out, scratch), {"x": x, "out": out}) == 0
    torch.testing.assert_close(out, x.softmax(1))


@pytest.mark.parametrize("scratch", [False, True])
def test_softmax_over_the_strided_axis(scratch):
    x = torch.randn(70, 33).t() * 5  # rows are strided: outer indices share vectors
    out = torch.empty(70, 33).t()
    assert run(softmax(x, out, scratch), {"x": x, "out": out}) == 0
    torch.testing.assert_close(out, x.softmax(1))


def test_softmax_in_place():
    x = torch.randn(30, 77)
    expected = x.softmax(1)
    assert run(softmax(x, x), {"x": x, "out": x}) == 0
    torch.testing.assert_close(x, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_layer_norm(dtype):
    x, w, b = torch.randn(37, 300).to(dtype), torch.randn(300).to(dtype), torch.randn(300).to(dtype)
    out = torch.empty(37, 300, dtype=dtype)
    i, j = new_range("i", 37), new_range("j", 300)
    f = torch.float32

    def wide(e):
        return e if dtype == f else Op("cast", (e,), f)

    value = wide(Load(buffer("x", x), (i, j)))
    mean = op("mul", Local("s", f), Const(1 / 300, f))
    centered = op("sub", value, mean)
    scale = op("rsqrt", op("add", op("mul", Local("q", f), Const(1 / 300, f)), Const(1e-5, f)))
    result = op("fma", op("mul", centered, scale), wide(Load(buffer("w", w), (j,))), wide(Load(buffer("b", b), (j,))))
    narrow = result if dtype == f else Op("cast", (result,), dtype)
    group = Group("ln", (i,), (
        Loop((j,), (Reduce("s", "sum", value, f),)),
        Loop((j,), (Reduce("q", "sum", op("mul", centered, centered), f),)),
        Loop((j,), (Store(buffer("out", out, "output"), (i, j), narrow),)),
    ))  # fmt: skip
    assert run(group, {"x": x, "w": w, "b": b, "out": out}) == 0
    expected = torch.nn.functional.layer_norm(x.float(), (300,), w.float(), b.float(), 1e-5)
    torch.testing.assert_close(
        out.float(), expected, rtol=1e-2 if dtype != f else 1e-5, atol=1e-2 if dtype != f else 1e-5
    )


def test_max_pool_window():
    x, out = torch.randn(2, 9, 21), torch.empty(2, 4, 10)
    c, h, w, a, b = (new_range(n, s) for n, s in zip("chwab", (2, 4, 10, 3, 3), strict=True))
    group = Group("pool", (c, h, w), (
        Loop((a, b), (Reduce("m", "max", Load(buffer("x", x), (c, h * 2 + a, w * 2 + b)), torch.float32),)),
        Loop((), (Store(buffer("out", out, "output"), (c, h, w), Local("m", torch.float32)),)),
    ))  # fmt: skip
    assert run(group, {"x": x, "out": out}) == 0
    assert torch.equal(out, torch.nn.functional.max_pool2d(x, 3, 2))


def test_column_statistics_with_broadcast_back():
    """Two results over a strided axis and a pass that uses both."""
    x, out = torch.randn(50, 70), torch.empty(50, 70)
    i, j = new_range("i", 50), new_range("j", 70)
    load = Load(buffer("x", x), (i, j))
    scaled = op("mul", load, Local("s", torch.float32))
    group = Group("g", (j,), (
        Loop((i,), (Reduce("s", "sum", load, torch.float32), Reduce("m", "min", load, torch.float32))),
        Loop((i,), (Store(buffer("out", out, "output"), (i, j), op("sub", scaled, Local("m", torch.float32))),)),
    ))  # fmt: skip
    compare(group, {"x": x, "out": out}, ["out"], tolerance=1e-4)


def test_running_sum_through_memory_stays_in_order():
    """A loop that reads what its previous iteration wrote must not be vectorised along itself."""
    x, out = torch.randn(6, 40), torch.zeros(6, 41)
    i, j = new_range("i", 6), new_range("j", 40)
    b = buffer("out", out, "output")
    group = Group(
        "cumsum", (i,), (Loop((j,), (Store(b, (i, j + 1), op("add", Load(b, (i, j)), Load(buffer("x", x), (i, j)))),)),)
    )
    assert run(group, {"x": x, "out": out}) == 0
    torch.testing.assert_close(out[:, 1:], x.cumsum(1))


def test_load_after_store_in_one_body_sees_the_new_value():
    x, a, b = torch.randn(50), torch.zeros(50), torch.zeros(50)
    i = new_range("i", 50)
    ba = buffer("a", a, "output")
    load = Load(ba, (i,))
    body = (
        Store(buffer("b", b, "output"), (i,), load),
        Store(ba, (i,), op("add", Load(buffer("x", x), (i,)), load)),
        Store(buffer("c", c := torch.zeros(50), "output"), (i,), op("add", load, load)),
    )
    a.fill_(3)
    assert run(Group("g", (i,), (Loop((), body),)), {"x": x, "a": a, "b": b, "c": c}) == 0
    assert (b == 3).all() and torch.equal(a, x + 3) and torch.equal(c, a + a)


@pytest.mark.parametrize("bad", [None, 0, 17, 99])
def test_check(bad):
    ids, table, out = torch.randint(0, 10, (100,)), torch.randn(10), torch.zeros(100)
    if bad is not None:
        ids[bad] = 10**9
    i = new_range("i", 100)
    index = Load(buffer("ids", ids), (i,))
    inside = op("and", op("ge", index, Const(0, torch.int64)), op("lt", index, Const(10, torch.int64)))
    group = Group("g", (i,), (Loop((), (
        Check(op("ge", index, Const(-5, torch.int64)), "far below"),
        Check(inside, "index out of range"),
        Store(buffer("out", out, "output"), (i,), Load(buffer("table", table), (dims.value(index, 10),))),
    )),))  # fmt: skip
    status = run(group, {"ids": ids, "table": table, "out": out})
    assert status == (0 if bad is None else 2)
    if bad is None:
        assert torch.equal(out, table[ids])


def test_check_of_one_index_guards_hoisted_loads():
    """The row's address depends on an index that the check must see first."""
    index, table, out = torch.tensor([10**12]), torch.randn(10, 50), torch.zeros(30, 50)
    i, j = new_range("i", 30), new_range("j", 50)
    load = Load(buffer("index", index), (0,))
    row = Load(buffer("table", table), (dims.value(load, 10), j))
    group = Group("g", (i,), (
        Loop((), (Check(op("lt", load, Const(10, torch.int64)), "out of range"),)),
        Loop((j,), (Store(buffer("out", out, "output"), (i, j), row),)),
    ))  # fmt: skip
    assert run(group, {"index": index, "table": table, "out": out}) == 1
    index[0] = 3
    assert run(group, {"index": index, "table": table, "out": out}) == 0
    assert torch.equal(out, table[3].expand(30, 50))


@pytest.mark.parametrize("n", [3, 60], ids=["of each lane", "of a row"])
def test_local_of_integer_positions(n):
    x, out = torch.randn(8, n), torch.empty(8)
    i, j = new_range("i", 8), new_range("j", n)
    best = Load(buffer("x", x), (i, dims.value(Local("p", torch.int64), n)))
    group = Group("g", (i,), (
        Loop((j,), (Reduce("p", "argmax", Load(buffer("x", x), (i, j)), torch.int64),)),
        Loop((), (Store(buffer("out", out, "output"), (i,), best),)),
    ))  # fmt: skip
    assert run(group, {"x": x, "out": out}) == 0
    assert torch.equal(out, x.amax(1))


def test_index_in_a_reduction():
    out = torch.empty(5, dtype=torch.int64)
    i, j = new_range("i", 5), new_range("j", 77)
    group = Group("g", (i,), (
        Loop((j,), (Reduce("s", "sum", Index(i * j + 1), torch.int64),)),
        Loop((), (Store(buffer("out", out, "output"), (i,), Local("s", torch.int64)),)),
    ))  # fmt: skip
    compare(group, {"out": out}, ["out"])


@pytest.mark.parametrize("kind", ["sum", "max", "argmin"])
@pytest.mark.parametrize("n", [50, 9000])
def test_half_types_accumulate_in_float32(kind, n):
    x = torch.rand(3, n).bfloat16()
    out = torch.empty(3, dtype=torch.int64 if kind.startswith("arg") else torch.bfloat16)
    assert run(reduction(x, kind, (1,), out), {"x": x, "out": out}) == 0
    expected = getattr(x.float(), {"max": "amax"}.get(kind, kind))(1).to(out.dtype)
    torch.testing.assert_close(out, expected)


def test_outputs_may_take_the_memory_of_inputs_read_later_in_the_body():
    x, y, a = torch.randn(100), torch.randn(100), torch.empty(100)
    expected = y * 2, x + 1
    i = new_range("i", 100)
    load_x, load_y = Load(buffer("x", x), (i,)), Load(buffer("y", y), (i,))
    body = (
        Store(buffer("b", x, "output"), (i,), op("add", load_y, load_y)),
        Store(buffer("a", a, "output"), (i,), op("add", load_x, Const(1.0, torch.float32))),
    )
    assert run(Group("g", (i,), (Loop((), body),)), {"x": x, "b": x, "y": y, "a": a}) == 0
    assert torch.equal(x, expected[0]) and torch.equal(a, expected[1])

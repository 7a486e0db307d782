"""Random groups as GPU kernels, under Triton's interpreter, against the reference; and as machine code for Hopper."""

from __future__ import annotations

import pytest
import torch

from dovetail.codegen.gpu import generate, kernel, plan
from dovetail.ir.kernel import REPORT
from dovetail.ir.liveness import loads
from dovetail.ir.loops import Check, Const, Group, Load, Local, Loop, Reduce, Store
from dovetail.ir.ranges import new_range
from dovetail.options import Options
from dovetail.runtime.gpu.loading import to_binary
from dovetail.schedule.gpu.split import spread
from tests.codegen.harness import buffer, compare, op
from tests.codegen.test_random_groups import Maker
from tests.codegen.test_reductions import CASES, _result_dtype, _values, reduction
from tests.codegen_gpu.interpreter import run, run_many


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("small", [False, True], ids=["", "small tiles"])
def test_random_group(seed, small, monkeypatch):
    if small:
        sides = ("SIDE", 4), ("SHORT_SIDE", 2), ("LONG_SIDE", 16)
        for name, value in (("LONGEST_ROW", 16), ("TILE", 16), ("FLAT", 32), *sides):
            monkeypatch.setattr(plan, name, value)
    torch.manual_seed(seed)
    maker = Maker(seed)
    group = maker.group()
    if maker.outputs:
        compare(group, maker.tensors, maker.outputs, run=run)


@pytest.mark.parametrize(("kind", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("axes", [(1,), (0,), (0, 2)], ids=str)
def test_reduce(kind, dtype, axes):
    x = _values((5, 7, 33), dtype)
    if kind == "prod" and dtype.is_floating_point:
        x = x.abs() ** 0.01
    out = torch.empty([n for k, n in enumerate(x.shape) if k not in axes], dtype=_result_dtype(kind, dtype))
    compare(reduction(x, kind, axes, out), {"x": x, "out": out}, ["out"], tolerance=1e-5, run=run)


def test_columns_that_programs_share_are_read_along_memory():
    x, out = torch.empty(16384, 4096), torch.empty(4096)
    parts, joined = spread(reduction(x, "sum", (0,), out))
    for group in (parts, joined):
        reads = [load.index for load in loads(group)]
        assert all(index[-1] is group.outer[-1] for index in reads)


@pytest.mark.parametrize("options", [Options(), Options(check_kernels=True)], ids=["", "checked"])
def test_groups_that_differ_in_names_are_one_kernel_for_their_own_buffers(options, monkeypatch):
    made = []
    build = kernel._Kernel.build
    monkeypatch.setattr(kernel._Kernel, "build", lambda self: made.append(self) or build(self))
    for name in "ab":
        x, out, i = torch.ones(6, 4), torch.zeros(6), new_range(f"{name}i", 6)
        j, given, sums = new_range(f"{name}j", 4), buffer(f"{name}x", x), f"{name}r"
        group = Group(f"{name}g", (i,), (
            Loop((j,), (Check(op("lt", Load(given, (i, j)), Const(9.0, torch.float32)), name),)),
            Loop((j,), (Reduce(sums, "sum", Load(given, (i, j)), torch.float32),)),
            Loop((), (Store(buffer(f"{name}y", out), (i,), Local(sums, torch.float32)),)),
        ))  # fmt: skip
        found = generate(group, options)
        assert [b.name for b in found.pointers if b.name != REPORT] == [f"{name}x", f"{name}y"]
        assert {a.buffer.name for a in found.accesses} == ({f"{name}x", f"{name}y"} if options.check_kernels else set())
        assert found.messages == (name,)
        assert run(group, {f"{name}x": x, f"{name}y": out}, options=options) == 0
        assert out.eq(4).all()
    assert len(made) == 1


@pytest.mark.parametrize("seed", range(0, 40, 8))
def test_machine_code(seed, monkeypatch):
    """Triton compiles the text for a GPU that this machine need not have, without a PATH."""
    monkeypatch.setenv("PATH", "")
    made = to_binary(generate(Maker(seed).group()), 90)
    assert made.code.startswith(b"\x7fELF")


@pytest.mark.parametrize("count", [2, 3, 5])
def test_many_at_once(count, monkeypatch):
    """Groups of different sizes in one launch."""
    monkeypatch.setattr(plan, "FLAT", 32)
    tensors, groups = {}, []
    for k in range(count):
        x, y = torch.randn(33 + 32 * k), torch.zeros(33 + 32 * k)
        tensors |= {f"x{k}": x, f"y{k}": y}
        i = new_range("i", len(x))
        load = Load(buffer(f"x{k}", x), (i,))
        groups.append(Group(f"g{k}", (i,), (Loop((), (Store(buffer(f"y{k}", y), (i,), op("mul", load, load)),)),)))
    run_many(groups, tensors)
    for k in range(count):
        torch.testing.assert_close(tensors[f"y{k}"], tensors[f"x{k}"] ** 2)
    assert to_binary(generate(groups[0], many=True), 90).code.startswith(b"\x7fELF")


INF, NAN = float("inf"), float("nan")
SPECIAL = [0.0, -0.0, 1e-45, -1e-40, 1e-30, 1.002959966659546, 3.9, 4.0, 1e10, 3e38, INF, -INF, NAN]


def test_erf():
    """As near to the exact value as CUDA's own function."""
    x = torch.cat([torch.tensor(SPECIAL), torch.linspace(-5, 5, 4001), 10.0 ** torch.linspace(-40, 2, 200)])
    y = run_pointwise(x, lambda load: op("erf", load))
    exact = torch.special.erf(x.double())
    torch.testing.assert_close(y.double(), exact, rtol=2.5e-7, atol=2e-45, equal_nan=True)
    assert torch.equal(y.signbit() & (y == y), x.signbit() & (x == x))


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_extremes(name, dtype):
    """NaN counts as extreme."""
    x = torch.tensor([3.0, NAN, -INF, INF, -1.0, 2.0] if dtype.is_floating_point else [3, -5, 0, 2, 7, 7]).to(dtype)
    y = run_pointwise(x, lambda load: op(name, load, Const(1, dtype)))
    wanted = (torch.maximum if name == "max" else torch.minimum)(x, torch.ones((), dtype=dtype))
    torch.testing.assert_close(y, wanted, rtol=0, atol=0, equal_nan=True)


def run_pointwise(x, compute):
    y, i = torch.zeros_like(x), new_range("i", len(x))
    value = compute(Load(buffer("x", x), (i,)))
    group = Group("g", (i,), (Loop((), (Store(buffer("y", y), (i,), value),)),))
    run(group, {"x": x, "y": y})
    assert to_binary(generate(group), 90).code.startswith(b"\x7fELF")
    return y

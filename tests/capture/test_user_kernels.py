"""Triton kernels of the program's in compiled functions, run by Triton's interpreter: results, gradients, mutations."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import dovetail
from dovetail.errors import GraphBreakError
from dovetail.ops.own.kernel_writes import written

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
interpreter = pytest.importorskip("triton.runtime.interpreter")


@interpreter.InterpretedFunction
def scale(x, out, sx, so, n, k, BLOCK: tl.constexpr, FLIP: tl.constexpr = False):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.load(x + places * sx, mask=places < n) * k
    if FLIP:
        found = -found
    tl.store(out + places * so, found, mask=places < n)


@interpreter.InterpretedFunction
def written_and_read(x, out, seen, n, BLOCK: tl.constexpr):
    """What is seen depends on whether `x` and `out` are the same memory."""
    places = tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(x + places, mask=places < n) + 1, mask=places < n)
    tl.store(seen + places, tl.load(x + places, mask=places < n), mask=places < n)


whole = triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["n"])})(scale)


def run(x, out, k, kernel=scale, **given):
    n = x.numel()
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, x.stride(0), out.stride(0), n, k, **given)
    return out


def looked_at(x, out):
    seen = torch.zeros_like(x)
    written_and_read[(1,)](x, out, seen, x.numel(), BLOCK=64)
    return [seen, out * 1]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return run(x, torch.empty_like(x), 2.0, BLOCK=16)

    @staticmethod
    def backward(ctx, gradient):
        return run(gradient.contiguous(), torch.empty_like(gradient), 2.0, BLOCK=16)


class Overwritten(torch.autograd.Function):
    """Keeps what becomes the gradient in its argument, as losses do that save memory."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(run(x, x, 0.5, BLOCK=16))
        return x.sum()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return run(x, x, 2.0, BLOCK=16) * gradient


def wrapped(kernel):
    """PyTorch 2.11 knows nothing of Triton's interpreter."""
    try:
        return torch.library.wrap_triton(kernel)
    except RuntimeError:
        return kernel


@torch.library.triton_op("dovetail_tests::tripled", mutates_args={})
def tripled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrapped(scale)[(triton.cdiv(x.numel(), 16),)](x, out, 1, 1, x.numel(), 3.0, BLOCK=16)
    return out


tripled.register_autograd(lambda ctx, gradient: tripled(gradient.contiguous()))


@torch.library.triton_op("dovetail_tests::negate_", mutates_args={"x"})
def negate_(x: torch.Tensor) -> None:
    wrapped(scale)[(1,)](x, x, x.stride(0), x.stride(0), x.numel(), 1.0, BLOCK=64, FLIP=True)


ONE_GRAPH = {
    "fused neighbours": lambda x: run(x.sin(), torch.empty_like(x), 2.0, BLOCK=16) + 1,
    "an input": lambda x: [run(x, x, 3.0, BLOCK=16, FLIP=True) * 2, x.sum()],
    "every second element": lambda x: [run(x[::2], x[::2], 3.0, BLOCK=16).sum(), x * 1],
    "a column": lambda x: [o := torch.zeros(len(x), 2), run(x, o[:, 1], 2.0, BLOCK=16).sum(), o.sum(0)],
    "twice": lambda x: run(run(x, o := torch.empty_like(x), 1.5, BLOCK=32), o, 1.5, BLOCK=32),
    "a number of sizes": lambda x: run(x, torch.empty_like(x), x.shape[0] / 2, BLOCK=16),
    "heuristics": lambda x: run(x, torch.empty_like(x), 2.5, whole) * x,
    "a plain grid": lambda x: [o := torch.empty_like(x), scale[(4,)](x, o, 1, 1, len(x), 2.0, BLOCK=16), o + 1],
    "arguments by name": lambda x: [
        o := torch.empty_like(x), scale.run(x, o, 1, 1, n=len(x), k=1.0, BLOCK=64, grid=(1,), warmup=False), o * 2
    ],
    "one tensor twice": lambda x: [y := x + 1, looked_at(y, y), looked_at(x, y), looked_at(x, x), y],
    "one tensor in two objects": lambda x: [y := x + 1, looked_at(y.view(-1), y[:]), y],
    "two parts": lambda x: [y := torch.stack([x, x * 2]), looked_at(y[0], y[1]), y],
    "an operator": lambda x: tripled(x.cos()) + 1,
    "an operator in place": lambda x: [negate_(y := x + 1), y * 2, negate_(x)],
    "a gradient": lambda x: Doubled.apply(x.sin()).cos().sum(),
    "a gradient in place": lambda x: Overwritten.apply(x * 2),
    "an operator's gradient": lambda x: tripled(x.sin()).cos().sum(),
}  # fmt: skip


def outcome(fn, x: torch.Tensor):
    found = fn(x)
    if x.requires_grad:
        found.backward()
        return found.detach(), x.grad
    return *pytree.tree_leaves(found), x


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ONE_GRAPH)
def test_one_graph(name, dynamic):
    fn = ONE_GRAPH[name]
    compiled = dovetail.compile(fn, fullgraph=True, dynamic=dynamic)
    for n in (40, 40, 50):
        x = torch.randn(n, requires_grad="gradient" in name)
        wanted, got = outcome(fn, x.detach().clone().requires_grad_(x.requires_grad)), outcome(compiled, x)
        for mine, eager in zip(got, wanted, strict=True):
            torch.testing.assert_close(mine, eager, check_stride=True)


def test_parts_that_overlap_end_the_graph():
    def fn(x):
        y = x + 1
        run(y[1:], y[:-1], 2.0, BLOCK=64)
        return y

    with pytest.raises(GraphBreakError, match="memory that it is given in several ways"):
        dovetail.compile(fn, fullgraph=True, backend="eager")(torch.ones(8))
    x = torch.arange(8.0)
    assert torch.equal(dovetail.compile(fn)(x), fn(x))


# ---------------------------------------------------------------- what is written to


@triton.jit
def counted(count, by):
    tl.atomic_add(count, by)


@triton.jit
def early(x, out, places, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if row >= n:
        return
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x + start + tl.arange(0, BLOCK))
    tl.store(out + tl.load(places + row), tl.sum(total))


@triton.jit
def walking(a, b, c, count, n):
    source, target = a, c
    for _ in range(n):
        tl.store(target, tl.load(source))
        source += 1
        target += 1
    counted(count, 1)
    chosen = a if n > 3 else b
    tl.store(b, tl.load(chosen))


@triton.jit
def chosen(a, b, n):
    tl.store(a if n > 3 else b, 1.0)


@triton.jit
def while_walking(x, out, n):
    source, target, k = x, out, 0
    while k < n:
        tl.store(target, tl.load(source))
        source += 1
        target += 1
        k += 1


@triton.jit
def in_blocks(x, out, n, BLOCK: tl.constexpr):
    source = tl.make_block_ptr(x, (n,), (1,), (0,), (BLOCK,), (0,))
    target = tl.make_block_ptr(out, (n,), (1,), (0,), (BLOCK,), (0,))
    for _ in range(2):
        tl.store(target, tl.load(source, boundary_check=(0,)), boundary_check=(0,))
        source, target = tl.advance(source, (BLOCK,)), tl.advance(target, (BLOCK,))


@triton.jit
def through_table(table):
    tl.store(tl.load(table).to(tl.pointer_type(tl.float32)), 1.0)


@triton.jit
def reading(x, n):
    tl.device_assert(tl.load(x) < n)


F, I = torch.zeros(4), torch.zeros(4, dtype=torch.int64)
WRITTEN = {
    early: ({"x": F, "out": F, "places": I, "n": 4, "BLOCK": 64}, {"out"}),
    walking: ({"a": F, "b": F, "c": F, "count": I, "n": 4}, {"b", "c", "count"}),
    chosen: ({"a": F, "b": F, "n": 4}, {"a", "b"}),
    while_walking: ({"x": F, "out": F, "n": 4}, {"out"}),
    in_blocks: ({"x": F, "out": F, "n": 4, "BLOCK": 64}, {"out"}),
    through_table: ({"table": I}, None),
    reading: ({"x": F, "n": 4.0}, set()),
}


if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9):  # which has no block pointers
    del WRITTEN[in_blocks]


@pytest.mark.parametrize("kernel", WRITTEN, ids=lambda kernel: kernel.__name__)
def test_what_a_kernel_writes_to(kernel):
    given, names = WRITTEN[kernel]
    assert written(kernel, given) == names


def test_a_kernel_that_nobody_can_follow_ends_the_graph():
    def fn(table):
        through_table[(1,)](table)
        return table + 1

    with pytest.raises(GraphBreakError, match="nobody can tell what the Triton kernel through_table writes to"):
        dovetail.compile(fn, fullgraph=True, backend="eager")(I)

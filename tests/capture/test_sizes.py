"""Programs of one line over sizes that change: equal to eager at every size, also 0 and 1, in few compilations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dovetail

SIZES = ((4, 6), (5, 7), (2, 3), (3, 3), (1, 5), (5, 1), (0, 3), (3, 0), (9, 2))

#: Two compilations serve every size.
FREE = {
    "shape": lambda x: (x.shape, x.size(), x.size(0), x.size(-1), x + 1),
    "length": lambda x: (len(x), x.numel(), x.nelement(), x * x.numel()),
    "arithmetic": lambda x: (x.shape[0] // 2, x.shape[0] % 2, x.shape[0] / 2, x.shape[0] ** 2, -x.shape[0], x + 1),
    "functions": lambda x: (divmod(x.shape[0], 3), abs(x.shape[0] - 3), float(x.shape[1]), x * math.sqrt(x.shape[0])),
    "rounding": lambda x: torch.zeros(math.ceil(x.shape[0] / 2), int(x.shape[1] * 0.5)) + round(x.shape[0] / 3),
    "sums": lambda x: (sum(x.shape), math.prod(x.shape), x.shape.numel(), min(x.shape), max(x.shape), x + 1),
    "slices of shapes": lambda x: (x.shape[:-1], x.shape[1:], x.new_zeros(x.shape[:-1] + (3,))),
    "texts": lambda x: (f"{x.shape[0]}x{x.shape[1]:>4}", str(x.shape), repr(x.shape[0]), str([x.shape[0]]), x + 1),
    "containers": lambda x: ({"n": x.shape[0]}, [x.shape[1], x], tuple(x.shape), list(x.shape)),
    "unpacked": lambda x: (lambda a, b: (a * b, x.reshape(b, a)))(*x.shape),
    "a type": lambda x: (isinstance(x.shape[0], int), type(x.shape[0]), x + 1),
    "scaled": lambda x: x / (x.shape[0] + 1) + x.shape[1],
    "zeros": lambda x: torch.zeros(x.shape[0], 4) + torch.ones(x.shape).sum(),
    "full": lambda x: torch.full((x.shape[1],), x.shape[0]),
    "tensors of sizes": lambda x: (torch.tensor(x.shape[0]), torch.tensor([x.shape[0], x.shape[1]]), x * 2),
    "arange": lambda x: torch.arange(x.shape[1]) + torch.arange(1, x.shape[1] + 1) * x,
    "expand": lambda x: x.sum(0).expand(x.shape[0], -1) + x,
    "view": lambda x: x.view(x.shape[0] * x.shape[1]) + x.view(-1),
    "flatten": lambda x: x.flatten().cos() + x.unsqueeze(0).flatten(0, 1).reshape(-1),
    "products": lambda x: (x.t() @ x, x @ x.t(), torch.einsum("ij,kj->ik", x, x)),
    "softmax": lambda x: torch.softmax(x, -1),
    "norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "triangle": lambda x: torch.tril(torch.ones(x.shape[1], x.shape[1])),
    "mask": lambda x: (x @ x.t()).masked_fill(torch.ones(x.shape[0], x.shape[0], dtype=torch.bool).triu(1), -1e9),
    "slice": lambda x: (x[:, : x.shape[1] // 2] * 2, x[1:] * 2, x[:-1] * 2, x[::2] + 1, x[-1:] + 1),
    "limited slice": lambda x: x[: min(x.shape[0], 3)] + 1,
    "padded": lambda x: (torch.zeros(max(x.shape[0], 3)), F.pad(x, (1, 2))),
    "cat": lambda x: (torch.cat([x, x], 0) * 2, torch.cat([x, torch.zeros(x.shape[0], 1)], 1)),
    "backwards": lambda x: torch.arange(x.shape[0] - 1, -1, -1) + torch.arange(x.shape[0], 0, -1),
    "cat with nothing": lambda x: torch.cat([torch.tensor([]), x, x]),
    "stack": lambda x: torch.stack([x, x + 1], 1),
    "repeat": lambda x: x.repeat(2, 3),
    "reductions": lambda x: (x.mean(0), x.sum(-1, keepdim=True), x.var(1, unbiased=False), x.cumsum(1)),
    "outer": lambda x: x.sum(1)[:, None] * x.sum(0)[None],
    "where": lambda x: torch.where(x > 0, x, torch.zeros(x.shape)),
    "sort": lambda x: x.sort(-1).values,
    "top": lambda x: x.topk(min(2, x.shape[1])).values,
    "eye": lambda x: torch.eye(x.shape[0]) @ x,
    "narrow": lambda x: x.narrow(0, 0, x.shape[0] // 2) + 1,
    "transposed": lambda x: (x.t().contiguous() + 1, x.t().reshape(-1), x.permute(1, 0) * 2),
    "in place": lambda x: x.clone().add_(x.shape[0]).mul_(2),
    "grid": lambda x: torch.meshgrid(torch.arange(x.shape[0]), torch.arange(x.shape[1]), indexing="ij"),
    "mapped": lambda x: torch.func.vmap(lambda row: row.reshape(row.shape[0], 1) * row.shape[0])(x),
    "differentiated": lambda x: torch.func.grad(lambda y: (y * y).sum() / (x.shape[0] + 1))(x),
}

#: The program decides by a size, so one more compilation for each way it goes.
BRANCHES = {
    "compared": (lambda x: x + 1 if x.shape[0] >= 2 else x - 1, 3),
    "equal to one": (lambda x: x.squeeze(0) if x.shape[0] == 1 else x * 2, 3),
    "truth": (lambda x: x + 1 if x.shape[0] else x, 3),
    "both": (lambda x: x + 1 if x.shape[0] > 1 and x.shape[1] > 1 else x, 4),
    "squeezed": (lambda x: x.squeeze() * 2, 4),
    "strides": (lambda x: (x.stride(), x.stride(0), x + 1), 4),
    "pooled rows": (lambda x: F.max_pool1d(F.pad(x, (1, 1)), 2, 1) if x.numel() else x, 3),
    "counted": (lambda x: x + 1 if x.numel() else x - 1, 4),
}

#: One compilation a size is all that can be done.
CONSTANT = {
    "loop": lambda x: sum(x * k for k in range(x.shape[0])),
    "rows": lambda x: [row + 1 for row in x],
    "key": lambda x: ({x.shape[0]: x + 1}, x.shape[0] in {4: 1}),
}


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(ours, theirs, equal_nan=True)
        assert ours.stride() == theirs.stride() or 0 in ours.shape or 1 in ours.shape
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs) and len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            same(a, b)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        same(list(ours.values()), list(theirs.values()))
    else:
        assert type(ours) is type(theirs) and ours == theirs


def entries(fn: Any) -> int:
    """How many compilations the sizes take, each result equal to eager's."""
    compiled = dovetail.compile(fn, backend="eager", fullgraph=True)
    for size in SIZES:
        x = torch.randn(size)
        try:
            want = fn(x)
        except Exception as error:
            with pytest.raises(type(error)):
                compiled(x)
        else:
            same(compiled(x), want)
    return len(compiled._dovetail_dispatcher.entries)


@pytest.mark.parametrize("name", FREE)
def test_any_size(name: str) -> None:
    assert entries(FREE[name]) == 2


@pytest.mark.parametrize("name", BRANCHES)
def test_decisions(name: str) -> None:
    fn, wanted = BRANCHES[name]
    assert entries(fn) <= wanted


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONSTANT)
def test_what_needs_the_number(name: str) -> None:
    assert entries(CONSTANT[name]) > 3


# ---------------------------------------------------------------- numbers used as sizes

NUMBERS = {
    "slice": lambda x, n: x[:n] * n,
    "zeros": lambda x, n: x.new_zeros(n, n + 1) + n,
    "arange": lambda x, n: torch.arange(n)[None] + x[:, None] * (n // 2),
    "beside a size": lambda x, n: torch.zeros(x.shape[0] * n) + min(n, x.shape[0]),
    "expand": lambda x, n: x.expand(n, -1) + 1,
    "repeat": lambda x, n: x.repeat(n),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_as_sizes(name: str) -> None:
    fn, x = NUMBERS[name], torch.randn(10)
    compiled = dovetail.compile(fn, backend="eager", fullgraph=True)
    for n in (2, 3, 4, 1, 0, 10, 12):
        same(compiled(x, n), fn(x, n))
    assert len(compiled._dovetail_dispatcher.entries) == 2


SHAPES = {
    "a tuple": (lambda x, shape: x.new_zeros(shape) + shape[0], tuple),
    "a shape": (lambda x, shape: x.new_ones(shape) * shape[1], torch.Size),
    "a list": (lambda x, shape: x.new_ones(shape) * shape[1], list),
    "broadcast": (lambda x, shape: torch.zeros(torch.broadcast_shapes(x.shape, shape)), lambda n: (n[0], 1)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_as_arguments(name: str) -> None:
    (fn, kind), x = SHAPES[name], torch.randn(3)
    compiled = dovetail.compile(fn, backend="eager", fullgraph=True)
    for size in ((4, 6), (5, 7), (2, 3), (1, 5), (0, 3), (9, 2)):
        same(compiled(x, kind(size)), fn(x, kind(size)))
    assert len(compiled._dovetail_dispatcher.entries) <= 3


# ---------------------------------------------------------------- layouts of inputs

LAYOUTS = {
    "contiguous": (lambda b, t: torch.randn(b, t, 3), 2),
    "transposed": (lambda b, t: torch.randn(t, b).t(), 3),
    "channels last": (lambda b, t: torch.randn(b, 3, t, 4).to(memory_format=torch.channels_last), 2),
    "part of rows": (lambda b, t: torch.randn(b, t, 8)[:, :, :4], 2),
    "expanded": (lambda b, t: torch.randn(b, 1).expand(b, t), 3),
    "prefix": (lambda b, t: torch.randn(b, 20)[:, :t], 2),
    "every second": (lambda b, t: torch.randn(2 * b, t)[::2], 3),
    "one of many": (lambda b, t: torch.randn(b, t, 3)[..., 0], 2),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str) -> None:
    make, wanted = LAYOUTS[name]
    fn = lambda x: (x * 2, x.reshape(-1), x.contiguous(), x.sum(-1))
    compiled = dovetail.compile(fn, backend="eager", fullgraph=True)
    for size in ((3, 4), (5, 6), (2, 7), (7, 7), (1, 5), (5, 1), (0, 4)):
        x = make(*size)
        same(compiled(x), fn(x))
    assert len(compiled._dovetail_dispatcher.entries) <= wanted


# ---------------------------------------------------------------- what else sees them


def test_errors_show_the_sizes_of_the_call() -> None:
    def fn(x, k):
        try:
            return (x + 1)[k]
        except IndexError as error:
            return str(error)

    compiled, x = dovetail.compile(fn, backend="eager"), torch.randn(4)
    for k in (1, 2, 3, 4, 5, -5):
        same(compiled(x, k), fn(x, k))


def test_a_backend_of_the_users_gets_numbers() -> None:
    given = []

    def backend(graph, inputs):
        given.append([type(v) for v in inputs])
        return graph.forward

    fn = lambda x: torch.zeros(x.shape[0], 2) + x.shape[0] * 2
    compiled = dovetail.compile(fn, backend=backend)
    for n in (2, 3, 4):
        same(compiled(torch.randn(n)), fn(torch.randn(n)))
    assert len(given) == 2 and torch.SymInt in given[1]


def test_sizes_kept_by_the_program_are_plain_numbers() -> None:
    kept = {}

    def fn(x):
        kept["n"], kept["half"] = x.shape[0], x.shape[0] // 2
        return x * 2

    compiled = dovetail.compile(fn, backend="eager")
    for n in (4, 5, 6):
        compiled(torch.randn(n))
        assert kept == {"n": n, "half": n // 2} and type(kept["n"]) is int


LAID_OUT = {
    "an operand": lambda x: x + torch.ones(x.shape), "a copy": lambda x: x.clone(), "new": torch.zeros_like,
    "empty": lambda x: torch.empty_like(x).fill_(0), "a copy of part": lambda x: (x[:, ::3] * 2, x.t().clone()),
}
STRIDES = [(8, 1), (1, 4), (100, 7), (7, 100), (100, 1), (1, 100), (3, 100), (8, 1)]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", LAID_OUT.values(), ids=LAID_OUT)
def test_results_are_laid_out_by_the_order_of_the_strides_of_each_call(fn, dynamic) -> None:
    compiled = dovetail.compile(fn, dynamic=dynamic, backend="aot_eager")
    for strides in STRIDES:
        x = torch.randn(2000).as_strided((4, 8), strides)
        found, wanted = (v if isinstance(v, tuple) else (v,) for v in (compiled(x), fn(x)))
        assert all(map(torch.equal, found, wanted)), strides
        assert [v.stride() for v in found] == [v.stride() for v in wanted], strides


def test_strides_in_the_same_order_are_one_graph() -> None:
    graphs = []
    compiled = dovetail.compile(lambda x: x * 2, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    for step in (10, 20, 30, 40):
        compiled(torch.randn(400).as_strided((4, 8), (step, 1)))
    assert len(graphs) == 2


@pytest.mark.parametrize("before", [
    lambda x: None, lambda x: torch._check(x.shape[0] == 5), lambda x: x[0] if x.shape[0] == 5 else x + torch.ones(5),
])  # fmt: skip
@pytest.mark.parametrize("write", [lambda x: x.add_(1), lambda x: x[0].mul_(2), lambda x: x[x > 0].zero_()])
def test_a_leaf_may_not_be_written_to_at_any_size(before, write) -> None:
    """Also where the program has left only one size possible."""

    def program(x):
        before(x)
        try:
            return write(x)
        except RuntimeError as error:
            return str(error).splitlines()[0]

    x = torch.ones(5, requires_grad=True)
    ours, theirs = dovetail.compile(program, dynamic=True, backend="aot_eager")(x), program(x)
    assert ours == theirs if isinstance(theirs, str) else torch.equal(ours, theirs)

"""Parts of tensors that are put together once: graphs before and after, and sums to the last bit."""

from __future__ import annotations

import random

import pytest
import torch

from dovetail.normalize.interpret import interpreter
from dovetail.normalize.normalize import record
from dovetail.normalize.passes import concatenated_pieces
from dovetail.normalize.passes.assemble_parts import join_parts
from dovetail.normalize.passes.dead_code import remove_dead
from dovetail.normalize.passes.no_ops import fold
from dovetail.ops.fake import to_fake
from tests.normalize.harness import check, graph_of
from tests.normalize.test_passes import after, lines

aten = torch.ops.aten
ROW, WIDE = torch.randn(3), torch.randn(3, 4)


def position(g, at, size=3):
    return aten.select_backward(g, [size, 3], 0, at)


def window(g, first, size=8):
    return aten.slice_backward(g, [3, size], 1, first, first + g.shape[1], 1)


SUMS = {
    "positions, some from the end, one of them left out": (lambda x: position(x, 0) + position(x.sin(), -1), """
        %sin = aten.sin(%x0)
        %add_tensor = aten.add.Tensor(%x0, 0)
        %unsqueeze_default = aten.unsqueeze(%add_tensor, 0)
        %full_default = aten.full([1, 3], 0.0, dtype=f32, device=cpu)
        %add_tensor_1 = aten.add.Tensor(%sin, 0)
        %unsqueeze_default_1 = aten.unsqueeze(%add_tensor_1, 0)
        %add = aten.cat([%unsqueeze_default, %full_default, %unsqueeze_default_1], 0)
        return (%add)"""),
    "a position twice": (lambda x: position(x, 1, 2) + position(x, 0, 2) + position(x.sin(), 1, 2), """
        %sin = aten.sin(%x0)
        %add_tensor = aten.add.Tensor(%x0, %sin)
        %add_tensor_1 = aten.add.Tensor(%x0, 0)
        %unsqueeze_default = aten.unsqueeze(%add_tensor_1, 0)
        %add_tensor_2 = aten.add.Tensor(%add_tensor, 0)
        %unsqueeze_default_1 = aten.unsqueeze(%add_tensor_2, 0)
        %add_1 = aten.cat([%unsqueeze_default, %unsqueeze_default_1], 0)
        return (%add_1)"""),
    "one part, which is left as it is": (lambda x: position(x, 1), """
        %select_backward = aten.select_backward(%x0, [3, 3], 0, 1)
        return (%select_backward)"""),
    "whole numbers": (lambda x: position(x.long(), 0, 2) + position(x.long(), 1, 2), """
        %_to_copy = aten._to_copy(%x0, dtype=i64)
        %_to_copy_1 = aten._to_copy(%x0, dtype=i64)
        %unsqueeze_default = aten.unsqueeze(%_to_copy, 0)
        %unsqueeze_default_1 = aten.unsqueeze(%_to_copy_1, 0)
        %add = aten.cat([%unsqueeze_default, %unsqueeze_default_1], 0)
        return (%add)"""),
}  # fmt: skip

WINDOWS = {
    "side by side": (lambda x: window(x, 0) + window(x.sin(), 4), """
        %sin = aten.sin(%x0)
        %add_tensor = aten.add.Tensor(%x0, 0)
        %add_tensor_1 = aten.add.Tensor(%sin, 0)
        %add = aten.cat([%add_tensor, %add_tensor_1], 1)
        return (%add)"""),
    "overlapping": (lambda x: window(x, 0, 6) + window(x, 2, 6), """
        %slice_tensor = aten.slice.Tensor(%x0, 1, 0, 2)
        %clone_default = aten.clone(%slice_tensor)
        %slice_tensor_1 = aten.slice.Tensor(%x0, 1, 2, 4)
        %slice_tensor_2 = aten.slice.Tensor(%x0, 1, 0, 2)
        %add_tensor = aten.add.Tensor(%slice_tensor_1, %slice_tensor_2)
        %add_tensor_1 = aten.add.Tensor(%clone_default, 0)
        %slice_tensor_3 = aten.slice.Tensor(%x0, 1, 2, 4)
        %add_tensor_2 = aten.add.Tensor(%slice_tensor_3, 0)
        %add = aten.cat([%add_tensor_1, %add_tensor, %add_tensor_2], 1)
        return (%add)"""),
    "with a whole tensor": (lambda x: window(x, 0) + window(x, 4) + torch.ones(3, 8), """
        %ones = aten.ones([3, 8], device=cpu, pin_memory=False)
        %add_tensor = aten.add.Tensor(%x0, 0)
        %add_tensor_1 = aten.add.Tensor(%x0, 0)
        %cat_default = aten.cat([%add_tensor, %add_tensor_1], 1)
        %add_1 = aten.add.Tensor(%ones, %cat_default)
        return (%add_1)"""),
    "parts of parts": (
        lambda x: window(aten.select_backward(x[:, 0], [3, 4], 1, 0), 0) + window(x, 4), """
        %select = aten.select.int(%x0, 1, 0)
        %add_tensor = aten.add.Tensor(%select, 0)
        %unsqueeze_default = aten.unsqueeze(%add_tensor, 1)
        %full_default = aten.full([3, 3], 0.0, dtype=f32, device=cpu)
        %add_tensor_1 = aten.add.Tensor(%x0, 0)
        %add = aten.cat([%unsqueeze_default, %full_default, %add_tensor_1], 1)
        return (%add)"""),
    "steps": (lambda x: aten.slice_backward(x, [3, 8], 1, 0, 8, 2) + aten.slice_backward(x, [3, 8], 1, 1, 8, 2), """
        %slice_backward = aten.slice_backward(%x0, [3, 8], 1, 0, 8, 2)
        %slice_backward_1 = aten.slice_backward(%x0, [3, 8], 1, 1, 8, 2)
        %add = aten.add.Tensor(%slice_backward, %slice_backward_1)
        return (%add)"""),
    "what a split gives": (lambda x: torch.cat([x, torch.zeros(3, 4)], 1) + torch.cat([torch.zeros(3, 4), x], 1), """
        %add_tensor = aten.add.Tensor(%x0, 0)
        %add_tensor_1 = aten.add.Tensor(%x0, 0)
        %add = aten.cat([%add_tensor, %add_tensor_1], 1)
        return (%add)"""),
}  # fmt: skip


def _stored(x):
    y = torch.zeros(2, 4)
    y[0] = x[0]
    y[1] = y[0] * x[1]
    return y


def _seen(x):
    y = torch.zeros(2, 4)
    y[0] = x[0]
    z = y.exp()
    y[1] = x[1]
    return y, z


def _grown(x):
    y = x[:1]
    for k in range(1, 3):
        y = torch.cat([y, x[k : k + 1] * y[-1:]])
    return y


STORED = {
    "read again": (_stored, """
        %select = aten.select.int(%x0, 0, 0)
        %select_3 = aten.select.int(%x0, 0, 1)
        %mul = aten.mul.Tensor(%select, %select_3)
        %unsqueeze_default = aten.unsqueeze(%select, 0)
        %unsqueeze_default_1 = aten.unsqueeze(%mul, 0)
        %select_scatter_1 = aten.cat([%unsqueeze_default, %unsqueeze_default_1], 0)
        return (%select_scatter_1)"""),
    "seen as a whole in between": (_seen, """
        %zeros = aten.zeros([2, 4], device=cpu, pin_memory=False)
        %select = aten.select.int(%x0, 0, 0)
        %select_scatter = aten.select_scatter(%zeros, %select, 0, 0)
        %exp = aten.exp(%select_scatter)
        %select_2 = aten.select.int(%x0, 0, 1)
        %select_scatter_1 = aten.select_scatter(%select_scatter, %select_2, 0, 1)
        return (%select_scatter_1, %exp)"""),
    "grown": (_grown, """
        %slice_1 = aten.slice.Tensor(%x0, 0, 0, 1)
        %slice_2 = aten.slice.Tensor(%x0, 0, 1, 2)
        %mul = aten.mul.Tensor(%slice_2, %slice_1)
        %slice_4 = aten.slice.Tensor(%x0, 0, 2, 3)
        %mul_1 = aten.mul.Tensor(%slice_4, %mul)
        %cat_1 = aten.cat([%slice_1, %mul, %mul_1], 0)
        return (%cat_1)"""),
}  # fmt: skip


@pytest.mark.parametrize("case", [*SUMS, *WINDOWS, *STORED])
def test_graphs(case):
    fn, expected = {**SUMS, **WINDOWS, **STORED}[case]
    given = ROW if case in SUMS else WIDE
    assert after(fn, given, passes=(remove_dead, fold, remove_dead, join_parts)) == lines(expected)
    check(fn, given)


class Sum:
    """A random sum, in a random order, of parts of a tensor that overlap as they please."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sizes = [self.random.randint(1, 7) for _ in range(self.random.randint(1, 3))]
        self.shapes: list[list[int]] = []
        self.text = self.sum(self.random.randint(2, 14))

    def sum(self, count: int) -> str:
        if count == 1:
            return self.whole(list(self.sizes)) if self.random.random() < 0.1 else self.part(list(self.sizes))
        left = count - 1 if self.random.random() < 0.6 else self.random.randint(1, count - 1)
        return f"({self.sum(left)} + {self.sum(count - left)})"

    def whole(self, sizes: list[int]) -> str:
        self.shapes.append(sizes)
        return f"x[{len(self.shapes) - 1}]"

    def part(self, sizes: list[int]) -> str:
        dim = 0 if self.random.random() < 0.7 else self.random.randrange(len(sizes))
        size, inner = sizes[dim], list(sizes)
        deeper = self.random.random() < 0.4
        kind = self.random.randrange(4)
        first = self.random.randrange(size)
        stop = self.random.randint(first + 1, size)
        if kind == 0 or len(sizes) == 1 and kind == 3:
            inner[dim] = stop - first
            text = f"aten.slice_backward({{}}, {sizes}, {dim}, {first}, {stop}, 1)"
        elif kind == 1:
            inner[dim] = -(-(stop - first) // 2)
            text = f"aten.slice_backward({{}}, {sizes}, {dim}, {first}, {stop}, 2)"
        elif kind == 2:
            inner[dim] = 1
            zeros = [list(sizes), list(sizes)]
            zeros[0][dim], zeros[1][dim] = first, size - first - 1
            text = f"torch.cat([torch.zeros({zeros[0]}), {{}}, torch.zeros({zeros[1]})], {dim})"
        else:
            del inner[dim]
            text = f"aten.select_backward({{}}, {sizes}, {dim}, {self.random.choice([first, first - size])})"
        return text.format(self.part(inner) if deeper and inner else self.whole(inner))

    def arguments(self) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        made = [torch.randn(s, generator=generator) for s in self.shapes]
        return [torch.where(torch.rand(x.shape, generator=generator) < 0.6, -0.0, x) for x in made]


@pytest.mark.parametrize("first", range(0, 300, 50))
@pytest.mark.parametrize("few", [1, concatenated_pieces.FEW])
def test_random_sums(first, few, monkeypatch):
    """The same bits, the signs of zeros among them."""
    monkeypatch.setattr(concatenated_pieces, "FEW", few)
    for seed in range(first, first + 50):
        made = Sum(seed)
        args = made.arguments()
        fn = lambda *x, made=made: eval(made.text, {"x": x, "aten": aten, "torch": torch})
        with torch.no_grad():
            graph = record(graph_of(fn, len(args)), [to_fake(a) for a in args])
            join_parts(graph)
            graph.graph.lint()
            (found,), want = interpreter(graph)(*args), fn(*args)
        assert torch.equal(found.view(torch.int32), want.view(torch.int32)), made.text


def nodes(fn, *args):
    with torch.no_grad():
        graph = record(graph_of(fn, len(args)), [to_fake(a) for a in args])
        join_parts(graph)
    return [n for n in graph.graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize("width", [1, 2, 6])
def test_windows_cost_what_they_hold(width):
    """Sums of windows that slide over a tensor write few elements more than the windows have."""

    def fn(x):
        total = window(x[:, :width], 0, 40)
        for k in range(1, 40 - width):
            total = total + window(x[:, k : k + width], k, 40)
        return total

    made = nodes(fn, torch.randn(3, 40))
    written = sum(n.meta["val"].numel() for n in made if n.target in (aten.add.Tensor, aten.cat.default))
    assert written <= 3 * 40 * (3 * width + 3)
    check(fn, torch.randn(3, 40))


def test_a_whole_tensor_among_overlapping_parts():
    def fn(x):
        total = x + window(x[:, :2], 0, 40)
        for k in range(1, 39):
            total = total + window(x[:, k : k + 2], k, 40)
        return total

    made = nodes(fn, torch.randn(3, 40))
    assert sum(n.meta["val"].numel() for n in made if n.target is aten.add.Tensor) <= 3 * 40 * 9
    check(fn, torch.randn(3, 40))


def test_what_is_read_as_a_view_elsewhere_stays():
    """Results that are views of what parts were written to."""

    def fn(x):
        y = torch.zeros(3, 4)
        y[0] = x[0]
        y[1] = x[1]
        return y[0], y.t()

    check(fn, WIDE)


def test_zeros_keep_their_sign_where_every_term_has_one(monkeypatch):
    """Pieces that are put together before something is added to them have different terms."""
    monkeypatch.setattr(concatenated_pieces, "FEW", 1)
    fn = lambda x: window(x, 0, 6) + window(x[:, 1:3], 1, 6) + window(x, 0, 6)
    x = torch.full((3, 6), -0.0)
    (found,) = interpreter(check(fn, x))(x)
    assert found[0].signbit().tolist() == fn(x)[0].signbit().tolist() == [False, True, True, False, False, False]

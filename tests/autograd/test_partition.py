"""What is kept for the backward pass, and what runs again; graphs as text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dovetail.autograd import draws, partition
from dovetail.ir.aten import AtenGraph, Pair
from dovetail.normalize import normalize_joint
from dovetail.normalize.text import aten_text
from dovetail.ops.fake import to_fake
from dovetail.options import Options
from tests.normalize.harness import graph_of
from tests.traits import give_host


def pair(fn: Callable[..., Any], *args: torch.Tensor) -> Pair:
    joint = normalize_joint(graph_of(fn, len(args)), [to_fake(a) for a in args], Options())
    assert joint is not None
    return partition(joint)


def leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


def check(found: Any, expected: str) -> None:
    lines = [" ".join(line.split()) for line in aten_text(found).strip().splitlines()]
    wanted = [" ".join(line.split()) for line in textwrap.dedent(expected).strip().splitlines()]
    assert lines == wanted, "\n".join(lines)


def names(split: Pair) -> list[str]:
    return [n.name for n in split.saved]


def targets(graph: Any) -> list[str]:
    return [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]


def test_cheap_operators_run_again():
    split = pair(lambda x: x.sin().exp(), leaf(8))
    check(split.forward, """
        graph(%x0: f32[8])
        %sin = aten.sin(%x0) f32[8]
        %exp = aten.exp(%sin) f32[8]
        return (%exp)
    """)
    check(split.backward, """
        graph(%x0: f32[8], %tangent_0: f32[8])
        %sin = aten.sin(%x0) f32[8]
        %exp = aten.exp(%sin) f32[8]
        %mul = aten.mul.Tensor(%tangent_0, %exp) f32[8]
        %cos = aten.cos(%x0) f32[8]
        %mul_1 = aten.mul.Tensor(%mul, %cos) f32[8]
        return (%mul_1)
    """)
    assert split.kept == (0,) and split.saved == ()


def test_results_of_matrix_products_are_kept():
    split = pair(lambda x, w: torch.relu(x @ w).sin(), leaf(8, 4), leaf(4, 6))
    assert names(split) in (["mm"], ["relu"])
    assert targets(split.backward).count("aten.mm.default") == 2


def test_the_narrow_end_of_a_chain_is_kept():
    """After the sum a thousandth of the bytes is left."""
    split = pair(lambda x, w: torch.tanh((x @ w).sum(1)), leaf(64, 8), leaf(8, 1000))
    assert [n.meta["val"].numel() for n in split.saved] == [64]


def test_long_chains_keep_something_on_the_way():
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(60):
            x = x.sin()
        return x

    split = pair(chain, leaf(8))
    assert 1 <= len(split.saved) <= 60 // 8
    assert targets(split.backward).count("aten.sin.default") < 60


def test_random_numbers_are_drawn_once():
    split = pair(lambda x: torch.nn.functional.dropout(x.sin(), 0.5), leaf(8))
    assert draws(split.forward) and not draws(split.backward)


def test_views_are_made_again_from_what_they_view():
    split = pair(lambda x, w: (x @ w).t().reshape(-1).exp(), leaf(8, 4), leaf(4, 6))
    assert all(torch.ops.aten.mm.default is n.target or n.target is torch.ops.aten.exp.default for n in split.saved)


def test_inputs_that_are_written_to_are_kept_as_they_were():
    def fn(x: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
        y = x * counter.clone()
        counter.add_(1)
        return y

    split = pair(fn, leaf(8), torch.ones(8))
    assert split.kept == () and [n.meta["val"].numel() for n in split.saved] == [8]
    assert "aten.clone.default" in targets(split.forward)


def test_nothing_to_differentiate_is_no_joint_graph():
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x.detach() * 2

    graph = graph_of(plain, 1)
    assert isinstance(normalize_joint(graph, [to_fake(leaf(3))], Options()), AtenGraph)


def test_what_follows_a_batch_norm_is_computed_again():
    def normed(x, weight, bias, kernel):
        mean, variance = torch.zeros(3), torch.ones(3)
        y = torch.nn.functional.batch_norm(x, mean, variance, weight, bias, training=True).relu()
        return torch.conv2d(y, kernel).sum()

    split = pair(normed, leaf(2, 3, 8, 8), leaf(3), leaf(3), leaf(4, 3, 1, 1))
    assert [tuple(n.meta["val"].shape) for n in split.saved] == [(3,), (3,), (3,)]
    assert "aten.relu.default" in targets(split.backward)


def test_where_memory_is_slow_what_libraries_read_twice_is_kept(monkeypatch):
    """Relus look at what the norms' gradients read anyway; where that is two tensors, at their result."""
    give_host(monkeypatch, keeps_operands=True)

    def block(x, weight, bias, w):
        normed = lambda x: torch.nn.functional.batch_norm(x, torch.zeros(4), torch.ones(4), weight, bias, training=True)
        return (x + normed(normed(x).relu() @ w)).relu() @ w

    split = pair(block, torch.ones(64, 4), leaf(4), leaf(4), leaf(4, 4))
    assert {"relu", "relu_1", "mm"} <= set(names(split))
    assert "aten.relu.default" not in targets(split.backward)
    masks = [n.args[1] for n in split.backward.graph.nodes if n.target is torch.ops.aten.threshold_backward.default]
    assert [mask.op for mask in masks] == ["placeholder", "call_function"]


@pytest.mark.parametrize("rows, kept", [(512, True), (16, False)])
def test_what_libraries_read_twice_makes_room_for_gradients(monkeypatch, rows, kept):
    """Of many rows what is kept outweighs the gradients of weights; of few it is the other way round."""
    give_host(monkeypatch, keeps_operands=True)
    gelu = torch.nn.functional.gelu
    split = pair(lambda x, v, w: gelu(gelu(x @ v) @ w) @ w, torch.ones(rows, 32), leaf(32, 32), leaf(32, 32))
    assert ({"gelu", "gelu_1"} <= set(names(split))) == kept
    assert ("aten.gelu.default" in targets(split.backward)) != kept


def test_a_relu_whose_argument_nobody_reads_looks_at_its_result(monkeypatch):
    give_host(monkeypatch, keeps_operands=True)
    split = pair(lambda x, v, w: (x @ v + 1).relu() @ w, leaf(8, 4), leaf(4, 4), leaf(4, 6))
    (mask,) = [n.args[1] for n in split.backward.graph.nodes if n.target is torch.ops.aten.threshold_backward.default]
    assert mask.op == "placeholder"


def test_concatenations_that_begin_alike_are_put_together_again():
    """Their parts, kept once, serve all of them."""

    def layers(x, v, w):
        first = x.sin()
        second = torch.cat([first, first @ v], 1)
        third = torch.cat([first, first @ v, second @ w], 1)
        return (second.exp() + third[:, 4:].exp()).sum()

    split = pair(layers, leaf(32, 4), leaf(4, 4), leaf(8, 4))
    assert split.kept == (0, 1, 2) and names(split) == ["mm", "mm_2"]
    assert targets(split.backward).count("aten.cat.default") == 2


def test_a_concatenation_alone_is_kept():
    split = pair(lambda x, y, w: torch.cat([x @ w, y @ w], 1).exp().sum(), leaf(32, 4), leaf(32, 4), leaf(4, 4))
    assert names(split) == ["cat"] and "aten.cat.default" not in targets(split.backward)


def test_the_derivative_of_relu_looks_at_what_is_computed_again():
    split = pair(lambda x, w: (x.sin().relu() @ w), leaf(8, 4), leaf(4, 6))
    check(split.backward, """
        graph(%x0: f32[8, 4], %x1: f32[4, 6], %tangent_0: f32[8, 6])
        %sin = aten.sin(%x0) f32[8, 4]
        %relu = aten.relu(%sin) f32[8, 4]
        %t = aten.t(%relu) f32[4, 8] strides (1, 4)
        %mm_1 = aten.mm(%t, %tangent_0) f32[4, 6]
        %t_1 = aten.t(%x1) f32[6, 4] strides (1, 6)
        %mm_2 = aten.mm(%tangent_0, %t_1) f32[8, 4]
        %threshold_backward = aten.threshold_backward(%mm_2, %sin, 0) f32[8, 4]
        %cos = aten.cos(%x0) f32[8, 4]
        %mul = aten.mul.Tensor(%threshold_backward, %cos) f32[8, 4]
        return (%mul, %mm_1)
    """)


def test_the_derivative_of_relu_looks_at_what_is_kept():
    split = pair(lambda x, w: (x @ w).relu().sin(), leaf(8, 4), leaf(4, 6))
    (call,) = [n for n in split.backward.graph.nodes if n.target is torch.ops.aten.threshold_backward.default]
    assert call.args[1].op == "placeholder"


def test_convolutions_get_images_in_their_fastest_layout():
    split = pair(lambda x, w: torch.conv2d(x, w).relu(), leaf(2, 16, 32, 32), leaf(8, 16, 3, 3))
    (call,) = [n for n in split.backward.graph.nodes if n.target is torch.ops.aten.convolution_backward.default]
    images = [n.meta["val"] for n in call.args[:2]]
    assert all(i.is_contiguous(memory_format=torch.channels_last) for i in images)
    gradients = split.backward.graph.output_node().args[0]
    assert all(g.meta["val"].is_contiguous() for g in gradients)


def test_inputs_and_results_are_kept_only_where_eager_keeps_them():
    """A caller may write to others before the backward pass: eager would not notice."""
    split = pair(lambda x: (x * 2).exp().sigmoid(), leaf(5))
    assert split.kept == () and [n.target for n in split.saved] != []
    assert pair(lambda x: x.sin(), leaf(5)).kept == (0,)


def test_draws_nobody_reads_stay_in_the_forward_half():
    split = pair(lambda x: (torch.rand(2), x.sin())[1], leaf(5))
    assert "aten.rand.default" in targets(split.forward)


def test_a_loss_keeps_what_the_product_left_in_memory():
    """Not the logarithms beside it, which only the loss would have read."""
    def loss(x, weight, target):
        return torch.nn.functional.cross_entropy((x @ weight).view(4, 16, 100)[:, :-1].flatten(0, 1), target)

    split = pair(loss, leaf(64, 16), leaf(16, 100), torch.randint(100, (60,)))
    assert sorted(n.meta["val"].numel() for n in split.saved)[-2:] == [60, 6400]


def test_what_a_product_reads_is_kept():
    """Probabilities are in memory anyway: keeping them costs no more than keeping the scores."""
    split = pair(lambda q, k, v: torch.softmax(q @ k, -1) @ v, leaf(8, 4), leaf(4, 8), leaf(8, 4))
    assert names(split) == ["_softmax"]

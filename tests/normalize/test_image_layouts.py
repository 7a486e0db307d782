"""What trains in float32 on a GPU, or has grouped convolutions, has images in the layout that is faster there."""

from __future__ import annotations

import math

import pytest
import torch

from dovetail.ir.devices import GPU, TRAITS
from dovetail.ir.trials import AnyTensor
from dovetail.normalize.normalize import record
from dovetail.normalize.passes import image_layouts
from dovetail.normalize.passes.channels_last import prefer_channels_last
from dovetail.ops.fake import FakeTensor
from dovetail.options import Options
from tests.normalize.harness import graph_of

aten = torch.ops.aten
SAME = [1, 1], [1, 1], [1, 1], False, [0, 0], 1


def step(x, k, g):
    """A convolution, a norm, and the gradients of the convolution."""
    y = aten.convolution(x, k, None, *SAME)
    z = aten._native_batch_norm_legit_functional(y, None, None, k[:, 0, 0, 0], k[:, 0, 0, 1], True, 0.1, 1e-5)[0]
    found = aten.convolution_backward(g, x, k, [0], *SAME, [True, True, False])
    return z.relu(), found[0], found[1]


@pytest.fixture
def chosen(monkeypatch):
    """Whether images have the channels last, where calls take so long."""

    def of(contiguous, last, size=8, dtype=torch.float32, fn=step, weights=((8, 8, 3, 3),)):
        tried = []

        def answers(trials, device):
            tried.append((trials, device))
            return [_seconds(t, last if _last(t) else contiguous) for t in trials]

        monkeypatch.setattr(image_layouts, "microseconds", answers)
        monkeypatch.setitem(TRAITS, "meta", TRAITS[GPU])
        device = torch.device("meta")
        there = lambda *n: FakeTensor(n, torch.empty(n, device="meta").stride(), dtype, device)
        with torch.no_grad():
            image = there(2, 8, size, size)
            given = [image, *(there(*weight) for weight in weights), *([image] if fn is step else [])]
            graph = record(graph_of(fn, len(given)), given)
            prefer_channels_last(graph, Options())
        made, *_ = (n for n in graph.graph.nodes if n.target is aten.convolution.default)
        return made.args[0].meta["val"].stride()[1] == 1, tried

    return of


def _seconds(trial, otherwise):
    """Copies move a terabyte a second."""
    return 8e-6 * math.prod(trial.args[0].sizes) if trial.operator is aten.copy_.default else otherwise


def _last(trial):
    return any(isinstance(a, AnyTensor) and len(a.sizes) == 4 and a.strides[1] == 1 for a in trial.args)


@pytest.mark.parametrize(
    "contiguous, last, faster",
    [(50.0, 20.0, True), (50.0, 45.0, False), (20.0, 50.0, False)],  # a norm's kernels take 10 us more
)
def test_what_is_faster_is_chosen(contiguous, last, faster, chosen):
    found, ((trials, device),) = chosen(contiguous, last)
    assert found == faster and device.type == "meta"
    assert len(trials) == 5 and len(set(trials)) == 5  # both convolutions in both layouts, and a copy


def test_norms_of_large_images_cost_more(chosen):
    """Reading 1 GB takes 1,000 us, and a part of that more."""
    assert chosen(1000.0, 940.0)[0]
    assert not chosen(1000.0, 940.0, size=4096)[0]


def test_the_largest_convolutions_are_tried(chosen, monkeypatch):
    """Here the gradients', which are two products: the rest is taken to gain alike."""
    monkeypatch.setattr(image_layouts, "TRIED", 0.5)
    found, ((trials, _),) = chosen(50.0, 20.0)
    assert found
    assert [t.operator for t in trials] == [aten.convolution_backward.default] * 2 + [aten.copy_.default]


def test_nothing_is_tried_for_half_types(chosen):
    assert chosen(20.0, 50.0, dtype=torch.bfloat16) == (True, [])


def mixing(x, k, w):
    """As in ConvMixer: each channel by itself, and all of a pixel."""
    return aten.convolution(aten.convolution(x, k, None, *SAME[:-1], 8).relu(), w, None, *SAME)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("last, faster, tried", [(20.0, True, 1), (90.0, False, 2)])
def test_grouped_convolutions_are_tried_alone_and_then_with_the_others(last, faster, tried, dtype, chosen):
    found, trials = chosen(50.0, last, dtype=dtype, fn=mixing, weights=((8, 1, 9, 9), (8, 8, 3, 3)))
    assert found == faster and len(trials) == tried


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_is_tried_where_kernels_of_ours_convolve(dtype, chosen):
    assert chosen(50.0, 90.0, dtype=dtype, fn=mixing, weights=((8, 1, 3, 3), (8, 8, 3, 3))) == (True, [])


def test_where_nothing_can_be_told(monkeypatch):
    monkeypatch.setattr(image_layouts, "microseconds", lambda *_: None)
    x, k = torch.empty(2, 8, 8, 8, device="meta"), torch.empty(8, 8, 3, 3, device="meta")
    graph = record(graph_of(step, 3), [x, k, x])
    nodes = [n for n in graph.graph.nodes if n.op == "call_function"]
    assert image_layouts.last_is_faster(nodes, [n for n in nodes if "convolution" in n.name]) is None

"""What nothing from outside goes into is computed on the device that wants it."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.normalize.interpret import interpreter
from dovetail.normalize.normalize import record
from dovetail.normalize.passes.dead_code import remove_dead
from dovetail.normalize.passes.literals import compute_literals
from dovetail.normalize.passes.origins import compute_where_wanted
from dovetail.normalize.text import aten_text
from dovetail.ops.fake import to_fake
from tests.normalize.harness import graph_of

THERE = torch.empty(8, device="meta")


def after(fn, *args):
    with torch.no_grad():
        aten = record(graph_of(fn, len(args)), [to_fake(a) for a in args])
    for apply in (compute_literals, compute_where_wanted, remove_dead):
        apply(aten)
    aten.graph.lint()
    return aten


COMPUTED = {
    "positions": lambda x: x + torch.arange(8).to(x.device),
    "a mask": lambda x: x.masked_fill((torch.arange(8)[None] > torch.arange(8)[:, None]).to(x.device), 0.0),
    "a table": lambda x: x * torch.exp(torch.arange(0, 16, 2).float() * -0.5).to(x),
    "places": lambda x: x[torch.arange(4)] + x.index_put((torch.arange(2) + 1,), x[:2])[:4],
    "several": lambda x: (lambda n: (x + n.to(x.device), x * (n * 2).to(x.device, torch.float32)))(torch.arange(8)),
    "numbers among": lambda x: x + (torch.ones(8) * torch.tensor(3.0)).to(x.device),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_nothing_is_left_to_the_cpu(name):
    fn = COMPUTED[name]
    aten = after(fn, THERE)
    assert "cpu" not in aten_text(aten)
    for node in aten.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cpu")}
    x = torch.randn(8)
    torch.testing.assert_close(interpreter(aten)(x), fn(x) if isinstance(fn(x), tuple) else (fn(x),))


@pytest.mark.parametrize("fn", [
    lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).to(x.device),
    lambda x: x[torch.tensor([0, 2])],
    lambda x: x + (torch.tensor([0, 2, 1, 0]).repeat(2) * 2).to(x.device),
])  # fmt: skip
def test_numbers_that_are_listed_are_brought_once(fn):
    aten = after(fn, THERE)
    assert {(type(value), value.device.type) for value in aten.constants.values()} == {(torch.Tensor, "meta")}
    assert [n.name for n in aten.graph.nodes if n.op == "placeholder"][1:] == [*aten.constants]


@pytest.mark.parametrize("fn", [
    lambda x, y: x + (torch.arange(8) + y).to(x.device),
    lambda x, y: x + torch.randperm(8).to(x.device),
])  # fmt: skip
def test_what_may_be_different_each_time_stays(fn):
    assert "device=cpu" in aten_text(after(fn, THERE, torch.tensor(3)))


def test_numbers_rounded_as_eagers_are_computed_where_eager_does(monkeypatch):
    seen = []
    monkeypatch.setattr("dovetail.normalize.passes.compute_where_wanted", seen.append)
    for numerics in ("default", "eager"):
        with dovetail.config.patch(numerics=numerics):
            dovetail.compile(COMPUTED["positions"])(torch.randn(8))
    assert len(seen) == 1

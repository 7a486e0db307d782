"""Inputs that share memory, one of them written to: the outcome is eager's."""

from __future__ import annotations

import itertools

import pytest
import torch

import dovetail
from dovetail.ir.launch import GraphFacts
from dovetail.ops.fake.rules.layout import overlaps_itself
from dovetail.runtime.call.overlap import collide, span, unmoved
from dovetail.runtime.call.plan import CallPlan
from dovetail.runtime.call.plan import load as load_call
from dovetail.runtime.gpu.graphs import Recorder
from dovetail.runtime.gpu.pools import Handed, Pool


def grow(x, y):
    x.add_(1)
    return y * 2


def swap(x, y):
    x.copy_(y)
    y.mul_(3)
    return x + y


def write_first(x):
    x[0].clamp_(-0.5, 0.5)
    return x * 2


def outcome(fn, inputs):
    """The result, or the error's text, and the inputs afterwards."""
    with torch.no_grad():
        try:
            return [fn(*inputs), *inputs]
        except RuntimeError as error:
            return [str(error), *inputs]


def same(mine, eager):
    for a, b in zip(mine, eager, strict=True):
        assert torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b


PAIRS = {
    "apart": lambda: (torch.arange(8.0), torch.arange(8.0)),
    "shifted": lambda: (b := torch.arange(9.0))[:8] is None or (b[:8], b[1:]),
    "same range": lambda: (b := torch.arange(8.0)) is None or (b, b.view(8)),
    "neighbours": lambda: (b := torch.arange(16.0)) is None or (b[:8], b[8:]),
    "interleaved": lambda: (b := torch.arange(16.0)) is None or (b[::2], b[1::2]),
}


@pytest.mark.parametrize("backend", ["dovetail", "aot_eager"])
@pytest.mark.parametrize("first", PAIRS)
@pytest.mark.parametrize("fn", [grow, swap])
def test_every_call_is_as_in_eager_whatever_the_first_was_like(fn, first, backend):
    compiled = dovetail.compile(fn, fullgraph=True, backend=backend)
    for name in (first, *PAIRS):
        same(outcome(compiled, PAIRS[name]()), outcome(fn, PAIRS[name]()))


def test_an_expanded_input_is_written_to_as_in_eager():
    compiled = dovetail.compile(write_first, fullgraph=True)
    same(*(outcome(fn, (torch.arange(4.0)[None].expand(3, 4),)) for fn in (compiled, write_first)))


def test_an_expanded_input_that_eager_refuses_is_refused():
    compiled = dovetail.compile(lambda x: x.add_(1), fullgraph=True)
    with torch.no_grad(), pytest.raises(RuntimeError, match="more than one element"):
        compiled(torch.zeros(1, 4).expand(3, 4))


@pytest.mark.parametrize("places, written, shared", [
    ([(0, 100, 8), (1, 108, 8)], {0}, False),
    ([(0, 100, 8), (1, 107, 8)], {0}, True),
    ([(0, 100, 8), (1, 107, 8)], {1}, True),
    ([(0, 100, 8), (1, 107, 8)], set(), False),
    ([(0, 100, 50), (1, 100, 4), (2, 140, 4)], {2}, True),
    ([(0, 100, 50), (1, 120, 0)], {0, 1}, False),
    ([(0, 100, 4), (1, 100, 50), (2, 120, 4)], {0}, True),
    ([(0, 100, 4), (1, 104, 50), (2, 120, 4)], {0}, False),
])  # fmt: skip
def test_collide(places, written, shared):
    assert collide(places, frozenset(written), []) is shared


def test_memory_of_a_constant_counts():
    assert collide([(0, 100, 8)], frozenset({0}), [(104, 4)])


@pytest.mark.parametrize("make, expected", [
    (lambda: torch.zeros(3, 4), False), (lambda: torch.zeros(3, 4).t(), False), (lambda: torch.zeros(8)[::2], False),
    (lambda: torch.zeros(1, 4).expand(3, 4), True), (lambda: torch.zeros(8).unfold(0, 4, 1), True),
    (lambda: torch.zeros(1).expand(1), False), (lambda: torch.zeros(0, 4).expand(0, 4), False),
    (lambda: torch.zeros(1, 4).expand(1, 4), False), (lambda: torch.zeros(()), False),
])  # fmt: skip
def test_overlaps_itself(make, expected):
    assert overlaps_itself(make()) is expected


def test_span_counts_to_the_end_of_the_last_element():
    assert [span(torch.zeros(3, 4)), span(torch.zeros(8)[::2]), span(torch.zeros(0, 4)), span(3)] == [48, 28, 0, 0]


def protected(call, eager, written, inputs):
    """`call`, or `eager` where inputs overlap."""
    return load_call(CallPlan(written=tuple(written), recorded=True), call, eager, inputs)[0]


def test_a_program_that_writes_nothing_pays_nothing():
    call = lambda x: x
    assert protected(call, lambda x: None, [], [torch.zeros(2)]) is call


def test_only_what_moved_is_looked_at_again():
    """Inputs 0 and 1 are written to and stay; whatever 2 then shares with them is found."""
    block = torch.zeros(64)
    written = [block[8:16], block[32:40]]
    inputs = [*written, torch.zeros(8)]
    call = protected(lambda *_: "compiled", lambda *_: "eager", [0, 1], inputs)
    assert call(*written, torch.zeros(8)) == "compiled"
    where = {0: "compiled", 1: "eager", 15: "eager", 16: "compiled", 24: "compiled", 25: "eager", 40: "compiled"}
    assert {first: call(*written, block[first : first + 8]) for first in where} == where
    assert call(written[0], block[16:24], block[20:28]) == "eager"
    assert call(written[0], block[16:24], block[32:40]) == "compiled"


def test_what_stands_for_inputs_that_have_not_moved():
    """One object for calls in a row with inputs in one place; another one as soon as something has moved."""
    seen, x, y = [], torch.zeros(4), torch.zeros(4)
    call = protected(lambda *_: seen.append(unmoved()), lambda *_: seen.append("eager"), [0], [x, y])
    for given in ((x, y), (x, y), (x, y.clone()), (x, y), (x, x), (x, y), (x, y)):
        call(*given)
    assert unmoved() is None and seen[4] == "eager" and all(s is not None for s in seen)
    same = [a is b for a, b in itertools.pairwise(seen)]
    assert same[0] and not any(same[1:3]) and seen[5] is seen[6]
    held = [seen[0], seen[2], seen[3]]
    assert len({id(s) for s in held}) == 3


def test_a_call_within_a_call():
    seen, x, y = [], torch.zeros(4), torch.zeros(4)
    inner = protected(lambda *inputs: seen.append(unmoved()), None, [0], [y])

    def outer(*inputs):
        seen.append(unmoved())
        inner(y)
        seen.append(unmoved())
        raise ValueError

    with pytest.raises(ValueError):
        protected(outer, None, [0], [x])(x)
    assert seen[0] is seen[2] is not seen[1] and unmoved() is None


class _Recorded:
    """A recording that counts how often it is asked."""

    def __init__(self):
        self.asked, self.good, self.taken, self.age = 0, None, None, 0
        self.pool, self.handed, self.unknown = Pool(), Handed({}, None), {}

    def is_where_it_was(self, inputs):
        self.asked += 1
        return True


@pytest.mark.parametrize("own, asked", [(True, [1, 1, 2, 3]), (False, [1, 2, 3, 4])])
def test_a_recorder_asks_once(own, asked, monkeypatch):
    """Where its inputs are the function's; inputs of parts inside may move by themselves."""
    monkeypatch.setattr(Recorder, "replay", lambda self, recording, inputs: None)
    recorder, recorded = Recorder(None, GraphFacts(torch.device("cpu"), own=own), None), _Recorded()
    x, y, counts = torch.zeros(4), torch.zeros(4), []
    recorder.set_of((x, y)).recordings[()] = recorded
    call = protected(lambda *inputs: recorder.run(inputs), None, [0], [x, y])
    for moving in (y, y, y.clone()):
        call(x, moving)
        counts.append(recorded.asked)
    recorder.run((x, y))
    assert [*counts, recorded.asked] == asked

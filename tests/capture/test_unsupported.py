"""What cannot be captured says so: a stable code, the user's line with a caret, a remedy."""

from __future__ import annotations

import pytest
import torch

from dovetail.capture.driver import capture
from dovetail.errors import Unsupported
from tests.capture.harness import OPTIONS


def branch(x):
    if x.sum() > 0:
        return x
    return -x


def item(x):
    return x * x.max().item()


def outer(x):
    return inner(x) + 1


def inner(x):
    return x.tolist()


def wrong(x):
    return x @ torch.zeros(7, 7)


def raises(x):
    raise ValueError("no good")


def text(x):
    return len(f"{x}")


CASES = [
    (branch, "data-dependent-branch", "x.sum() > 0"),
    (item, "data-dependent-value", "x.max().item()"),
    (outer, "data-dependent-value", "x.tolist()"),
    (wrong, "user-exception", "x @ torch.zeros(7, 7)"),
    (raises, "user-exception", 'raise ValueError("no good")'),
    (text, "text-of-tensor", 'len(f"{x}")'),
]


@pytest.mark.parametrize("function, code, shown", CASES)
def test_error(function, code, shown):
    with pytest.raises(Unsupported) as caught:
        capture(function, (torch.ones(3, 3),), {}, OPTIONS)
    error = caught.value
    assert error.code == code
    assert shown in str(error) and "^" in str(error) and error.reason
    assert error.stack[0].function == function.__name__ and error.stack[0].filename == __file__


def test_the_stack_has_every_inlined_frame():
    with pytest.raises(Unsupported) as caught:
        capture(outer, (torch.ones(3),), {}, OPTIONS)
    assert [place.function for place in caught.value.stack] == ["outer", "inner"]


def test_nothing_happens_when_capture_fails():
    log = []

    def half(x):
        log.append(1)
        with torch.enable_grad():
            return x.item()

    with torch.no_grad():
        with pytest.raises(Unsupported):
            capture(half, (torch.ones(1),), {}, OPTIONS)
        assert not torch.is_grad_enabled() and log == []


def test_nodes_know_their_line():
    graph = capture(lambda x: x.sin().cos(), (torch.ones(3),), {}, OPTIONS).graph.graph
    calls = [n for n in graph.nodes if n.op == "call_method"]
    assert [n.meta["stack"][-1].filename for n in calls] == [__file__, __file__]
    assert all(n.meta["fake"].shape == (3,) for n in calls)

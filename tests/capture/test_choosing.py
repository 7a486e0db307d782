"""`min` and `max` of tensors with one element give eager's tensor: the same object, values, gradients."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.errors import GraphBreakError
from tests.fuzz.python.observe import Walk, difference

CALLS = [(1.0, 2.0), (2.0, 1.0), (2.0, 2.0), (float("nan"), 1.0), (1.0, float("nan")), (-0.0, 0.0)]
WHOLE = """
min(a, b)
[max(a, b) * 2, a]
min(a, b, c[1]) + max([a, b, c[0] - 1])
max(map(torch.sum, [c, a, b])) * c
min(v * v for v in c)
min(c[:1], c[1:] * 2)
[max([a], default=3), max([], default=b)]
min([c, c * 2], key=lambda v: v.sum()) + 1
max(a, b, c[0], key=lambda v: -v)
[m := min(a, b), m * 2, m.shape, m.dtype, m is None, m.requires_grad]
max(a > 1.5, b > 1.5)
min(a.half(), b.half()) + 1
min(min(a, b), max(b, c[0]))
[m := max(a, b), torch.stack([m, a, b]), {"m": m}, (m, a)]
[min(a, b) * 2, min(c) + 1, a is b]
max(a, 1)
c / max(a, 1) + min(a, 1.5) * c
[m := max((c > 0).sum(), 1), c / m, m]
c * max(a.double(), 0.1) + max(0.5, b) * c.double()
min(2, a) - c
""".strip().splitlines()
DIFFERENTIATED = """
min(a, b)
max(a, b, c.sum())
min([a.sqrt(), (b - b).sqrt()])
[max(a, b).shape, max(a * 2, b * 3), (a > b) * a]
max(c[0] * a, c[1] * b)
[max(a * 2, 3.0), a * b]
""".strip().splitlines()
BREAKING = """
min(a, b).add_(5)
[min(a, b), a.add_(0) * 2][1]
[m := min(a, b), b.mul_(2), m * 1]
[min(a, b) is a, min(a, b) in [b]]
[min(a, b)[None], c]
{min(a, b): 1}.get(a)
min(a, 1.5) * 2
isinstance(max(a, 1), torch.Tensor)
[max(a, 1)] + [min(a, 1, b)]
c.long() * max(a, 1)
c.half() * max(a.half(), 0.1)
c.double() * max(a, 0.1)
torch.clamp(c, max=min(a, 1.5))
max(a, 1).shape if a > 1 else max(a, 1) + 1
f"{max(a, 1)}"
min(a, b.double())
min(c, a)
setattr(min(a, b), "name", 3)
min(a, b).requires_grad_()
[a.view(1), b.view(1)][0].add_(min(a, b))
""".strip().splitlines()


def outcome(function, call, requires_grad=False):
    a, b = (torch.tensor(v, requires_grad=requires_grad) for v in call)
    c, walk = torch.tensor([3.0, -1.0], requires_grad=requires_grad), Walk()
    try:
        result = function(a, b, c)
        results = result if isinstance(result, list | tuple) else [result]
        differentiable = [v for v in results if isinstance(v, torch.Tensor) and v.requires_grad]
        if requires_grad and differentiable:
            sum(v.sum() for v in differentiable).backward()
        walk.root("result", (result, [t.grad for t in (a, b, c)], vars(a), vars(b)))
    except Exception as error:
        walk.root("error", (type(error), str(error)))
    walk.root("arguments", [a, b, c])
    return walk


def check(text, backend, fullgraph, **options):
    function = eval(f"lambda a, b, c: {text}")
    compiled = dovetail.compile(function, backend=backend, fullgraph=fullgraph)
    for call in (*CALLS, *CALLS):
        assert difference(outcome(compiled, call, **options), outcome(function, call, **options)) is None, call


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
@pytest.mark.parametrize("text", WHOLE)
def test_one_graph(text, backend):
    check(text, backend, True)


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
@pytest.mark.parametrize("text", DIFFERENTIATED)
def test_gradients_reach_the_tensor_that_was_chosen(text, backend):
    check(text, backend, True, requires_grad=True)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("text", [*WHOLE, *BREAKING])
def test_breaks_where_the_tensor_itself_is_needed(text, requires_grad):
    check(text, "eager", False, requires_grad=requires_grad)


REFUSED = ["min(a, b) * 2", "max(a, 1) * b", "max(a, b).backward()", "torch.autograd.grad(max(a, b), a)"]


@pytest.mark.parametrize("text", REFUSED)
def test_gradients_of_a_copy_are_refused(text):
    compiled = dovetail.compile(eval(f"lambda a, b: {text}"), backend="eager", fullgraph=True)
    with pytest.raises(GraphBreakError, match="chosen-tensor"):
        compiled(*(torch.tensor(v, requires_grad=True) for v in (1.0, 2.0)))

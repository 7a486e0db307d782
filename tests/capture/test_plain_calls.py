"""Higher-order operators that compute what their function computes are traced in place; beside each what it means."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.foreach_map import foreach_map  # noqa: F401
from torch._higher_order_ops.hints_wrap import hints_wrapper  # noqa: F401
from torch._higher_order_ops.strict_mode import strict_mode  # noqa: F401

import dovetail
from tests.capture.harness import compare

CALLS = """
hints_wrapper(lambda a, b: a.sin() * b, (x, 2), {}, hints={"k": True})     x.sin() * 2
hints_wrapper(lambda a: (a + 1, [a]), [x * 2], {}, {})                     (x * 2 + 1, [x * 2])
error_of(lambda: hints_wrapper(torch.sin, (x,), {}, {3: 4}))               "hints key must be a str, got 3."
foreach_map(torch.add, [x, x + 1], (x, x))                                 [x + x, x + 1 + x]
foreach_map(lambda a, b: (a * b).exp(), [x, x + 1], 2)                     [(x * 2).exp(), ((x + 1) * 2).exp()]
foreach_map(torch.mul, x, 3)                                               x * 3
strict_mode(lambda a, b: (a - b, {"k": a}), (x, 1))                        (x - 1, {"k": x})
print_("value {a} {}", 1, a=x) or x + 1                                    print("value {a} {}".format(1, a=x)) or x + 1
"""
print_ = torch._higher_order_ops.print


def error_of(call):
    try:
        return call()
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("line", CALLS.strip().splitlines())
def test_is_its_function(line, capsys):
    found = []
    for text in line.split("   ", 1):
        function = eval(f"lambda x: {text.strip()}", globals())
        if not found:
            function = dovetail.compile(function, backend="eager", fullgraph=True)
        leaf = torch.tensor([1.0, 2.0], requires_grad=True)
        result = function(leaf)
        tensors = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        sum([t.sum() for t in tensors], torch.zeros((), requires_grad=True)).backward()
        found.append((result, leaf.grad, capsys.readouterr().out))
    compare(*found)

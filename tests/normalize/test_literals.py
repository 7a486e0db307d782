"""What the CPU makes of numbers alone is computed once: as text, and against eager."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.normalize.normalize import record
from dovetail.normalize.passes import simplify
from dovetail.normalize.passes.dead_code import remove_dead
from dovetail.normalize.passes.literals import compute_literals
from dovetail.normalize.text import aten_text
from dovetail.ops.fake import to_fake
from dovetail.ops.own.check import check
from dovetail.options import Options
from tests.normalize.harness import graph_of

THERE = torch.empty(8, device="meta")


def after(fn, *args):
    with torch.no_grad():
        aten = record(graph_of(fn, len(args)), [to_fake(a) for a in args])
    compute_literals(aten)
    remove_dead(aten)
    aten.graph.lint()
    return [n.target for n in aten.graph.nodes if n.op == "call_function"], aten_text(aten)


def test_a_chain_is_one_number():
    operators, text = after(lambda x: x / torch.sqrt(torch.tensor(64.0) * 3), torch.ones(8))
    assert operators == [torch.ops.aten.full.default, torch.ops.aten.div.Tensor]
    assert "aten.full([], 13.856406211853027, dtype=f32, device=cpu)" in text


def assigned(x):
    x = x.index_fill(0, (x[:2] > 0).long(), torch.tensor(2.0))
    x[1] = torch.tensor(3)
    x[x > 3] = torch.tensor(0.5)
    x[3:5] = torch.tensor(4)
    return x


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x / torch.sqrt(torch.tensor(64.0)),
        lambda x: x.masked_fill(x > 0, torch.tensor(-torch.inf)),
        assigned,
        lambda x: torch.where(x > 0, torch.tensor(3).type_as(x), x),
        lambda x: x * torch.tensor(2.0).to(x.device, torch.float16),
        lambda x: x + torch.tensor(True),
    ],
)
def test_nothing_is_left_to_the_cpu_in_a_graph_for_another_device(fn):
    _, text = after(fn, THERE)
    assert "cpu" not in text, text


@pytest.mark.parametrize(
    "fn, left",
    [
        (lambda x: x + torch.tensor(3.0) * torch.rand(()), torch.ops.aten.rand.default),
        (lambda x: x.long() + torch.tensor(1) // torch.tensor(0), torch.ops.aten.floor_divide.default),
        (lambda x: x + torch.tensor([3.0, 4.0]).sum(), torch.ops.aten.sum.default),
    ],
)  # fmt: skip
def test_what_is_not_a_number_each_time_stays(fn, left):
    assert left in after(fn, torch.ones(8))[0]


def written(x):
    count = torch.tensor(1)
    before = count + 1
    count.add_(2)
    return x + count, count, before, count.view(1)


SEEN = []


def kept(x):
    SEEN.append(torch.tensor(2.0))
    return x * SEEN[-1]


CASES = {
    "written": written,
    "assigned": assigned,
    "returned": lambda x: (torch.tensor(2.0), torch.tensor(2.0) + 1, x),
    "double": lambda x: x * torch.tensor(1 / 3, dtype=torch.float64),
    "integer": lambda x: x * torch.tensor(2**53 + 1) + torch.tensor(7) // torch.tensor(2),
    "bool": lambda x: x + (torch.tensor(True) & torch.tensor(3).bool()),
    "half": lambda x: (x.half() / torch.tensor(3.3, dtype=torch.float16).sqrt(), x.bfloat16() * torch.tensor(0.1)),
    "not numbers": lambda x: x + torch.where(torch.tensor(False), torch.tensor(torch.nan), -torch.tensor(torch.inf)),
    "negative zero": lambda x: torch.copysign(x, torch.tensor(0.0) * -1),
    "complex": lambda x: x * torch.tensor(1 + 2j),
    "promotion": lambda x: (x.int() * torch.tensor(2.5), torch.tensor(2.5, dtype=torch.float64) * torch.tensor(2)),
    "kept by the program": kept,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("gradients", [False, True])
def test_it_is_what_eager_computes(name, gradients):
    fn = CASES[name]
    for fill in (1.5, -2.25):
        x, y = (torch.full((8,), fill, requires_grad=gradients) for _ in range(2))
        expected, found = fn(x), dovetail.compile(fn)(y)
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        if gradients:
            for result in (expected, found):
                sum((r.abs().sum() for r in _differentiable(result)), torch.zeros((), requires_grad=True)).backward()
            torch.testing.assert_close(y.grad, x.grad, rtol=1e-3, atol=0, equal_nan=True)


def _differentiable(results):
    found = results if isinstance(results, tuple) else (results,)
    return [r for r in found if r.requires_grad]


def sizes_checked(x):
    sizes = torch.empty((3, 2), dtype=torch.int64, device=x.device)
    for k in range(3):
        sizes[k, 0], sizes[k, 1] = k + 1, 2 * k
    check(((sizes[:, 0] * sizes[:, 1]).sum() == 16).all(), [], "other sizes")
    return x * 2


@pytest.mark.parametrize("x", [torch.ones(8), THERE], ids=["CPU", "elsewhere"])
def test_a_check_of_numbers_that_are_known(x):
    with torch.no_grad():
        aten = simplify(record(graph_of(sizes_checked, 1), [to_fake(x)]), Options())
    remove_dead(aten)
    assert [n.target for n in aten.graph.nodes if n.op == "call_function"] == [torch.ops.aten.mul.Tensor]


def test_a_check_that_fails_for_all_inputs():
    def fn(x):
        torch._check_tensor_all(torch.full((2,), 3, device=x.device).sum() == 5)
        return x * 2

    with pytest.raises(RuntimeError, match="Expected cond to be True"):
        dovetail.compile(fn)(torch.ones(8))

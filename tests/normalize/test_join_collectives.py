"""Equal collectives are joined, and sums reduced once, where the user says that all processes compile the same."""

from __future__ import annotations

import re

import pytest
import torch

from dovetail.ir.aten import JointGraph
from dovetail.normalize import normalize, normalize_joint
from dovetail.normalize.text import aten_text
from dovetail.ops.fake import to_fake
from dovetail.options import Options
from tests.normalize.harness import graph_of

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="no torch.distributed")
made = torch.ops._c10d_functional if torch.distributed.is_available() else None
_TYPE = re.compile(r" +f32\[.*$")


def reduced(x, operation="sum", group="g"):
    return made.wait_tensor(made.all_reduce(x, operation, group))


def scattered(x):
    return made.wait_tensor(made.reduce_scatter_tensor(x, "sum", 2, "g"))


def gathered(x):
    return made.wait_tensor(made.all_gather_into_tensor(x, 2, "g"))


def lines(program, fewer: bool = True, sizes: tuple = (4, 8)) -> list[str]:
    inputs = [to_fake(torch.ones(sizes)) for _ in range(3)]
    with torch.no_grad():
        text = aten_text(normalize(graph_of(program, 3), inputs, Options(fewer_collectives=fewer)))
    return [_TYPE.sub("", line).strip() for line in text.splitlines()[1:]]


def test_a_sum_of_reduced_tensors_is_reduced_once() -> None:
    assert lines(lambda x, y, z: reduced(x) + reduced(y) + reduced(z)) == [
        "%add_tensor = aten.add.Tensor(%x0, %x1)",
        "%add_tensor_1 = aten.add.Tensor(%add_tensor, %x2)",
        "%all_reduce_2 = _c10d_functional.all_reduce(%add_tensor_1, 'sum', 'g')",
        "return (%all_reduce_2)",
    ]


def test_terms_that_are_not_reduced_may_lie_between() -> None:
    def program(x, y, z):
        return (z + reduced(x)) + (reduced(z, "avg") + (reduced(y) + reduced(x, "avg")))

    assert lines(program) == [
        "%add_tensor = aten.add.Tensor(%x0, %x1)",
        "%all_reduce_2 = _c10d_functional.all_reduce(%add_tensor, 'sum', 'g')",
        "%add_tensor_1 = aten.add.Tensor(%x2, %x0)",
        "%all_reduce_3 = _c10d_functional.all_reduce(%add_tensor_1, 'avg', 'g')",
        "%add_1 = aten.add.Tensor(%all_reduce_2, %all_reduce_3)",
        "%add_3 = aten.add.Tensor(%x2, %add_1)",
        "return (%add_3)",
    ]


def test_a_sum_of_scattered_tensors_is_scattered_once() -> None:
    assert lines(lambda x, y, z: scattered(x) + scattered(y)) == [
        "%add_tensor = aten.add.Tensor(%x0, %x1)",
        "%reduce_scatter_tensor_1 = _c10d_functional.reduce_scatter_tensor(%add_tensor, 'sum', 2, 'g')",
        "return (%reduce_scatter_tensor_1)",
    ]


def test_what_is_gathered_twice_is_gathered_once() -> None:
    found = lines(lambda x, y, z: gathered(x).sin() + gathered(x).cos())
    assert [line for line in found if "c10d" in line] == [
        "%all_gather_into_tensor = _c10d_functional.all_gather_into_tensor(%x0, 2, 'g')"
    ]


APART = {
    "eager's collectives": lambda x, y, z: reduced(x) + reduced(y),
    "another operation": lambda x, y, z: reduced(x) + reduced(y, "avg"),
    "another group": lambda x, y, z: reduced(x) + reduced(y, group="h"),
    "no sum": lambda x, y, z: reduced(x, "max") + reduced(y, "max"),
    "a part is read": lambda x, y, z: (part := reduced(x), part + reduced(y)),
    "a weighted sum": lambda x, y, z: torch.add(reduced(x), reduced(y), alpha=2),
    "sizes that differ": lambda x, y, z: reduced(x) + reduced(y[:1]),
    "layouts that differ": lambda x, y, z: reduced(x[:, :4]) + reduced(y[:, :4].t()),
}


@pytest.mark.parametrize("what", APART)
def test_others_stay_apart(what: str) -> None:
    found = lines(APART[what], fewer=what != "eager's collectives")
    assert sum("all_reduce(" in line for line in found) == 2, found


def test_a_backward_half_gathers_again_what_the_forward_half_does_not_keep() -> None:
    class Gathers(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x)
            return gathered(x).sum() * y

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return None, (gathered(x).sum() + gathered(x).sum()) * gradient

    inputs = [to_fake(torch.ones(2, 4)), to_fake(torch.ones(2, 4).requires_grad_())]
    joint = normalize_joint(graph_of(lambda x, y: Gathers.apply(x, y), 2), inputs, Options(fewer_collectives=True))
    assert isinstance(joint, JointGraph)
    assert aten_text(joint.aten).count("all_gather_into_tensor(") == 2

"""Outputs made by straight-line code: views in the grad mode that each was made in, which holds nowhere else."""

from __future__ import annotations

import pytest
import torch

from dovetail.ir.aten import Returned, ViewStep
from dovetail.runtime.call.view_replay import compile_output_builder

aten = torch.ops.aten


def step(operator, *args, grad=True, index=None):
    return ViewStep(operator, args, {}, index, grad)


def test_views_have_the_history_of_their_mode():
    x = torch.randn(2, 3, requires_grad=True) * 1
    returned = (
        Returned("result", 0, (step(aten.t.default, grad=False),)),
        Returned("result", 0, (step(aten.view.default, [6]),)),
        Returned("output", 3, (step(aten.detach.default),)),
        Returned("input", 0, (step(aten.unbind.int, 0, index=1), step(aten.unsqueeze.default, 0))),
        Returned("object", "word"),
    )
    plain, flat, detached, part, word = compile_output_builder(returned, (x,), (x,))((x,), (x,))
    assert torch.is_grad_enabled()
    assert plain._base is x and plain.shape == (3, 2) and plain.grad_fn is None
    assert flat.grad_fn is not None and flat.shape == (6,)
    assert torch.equal(part, x[1:]) and part.grad_fn is not None
    assert torch.equal(detached, part) and not detached.requires_grad
    assert word == "word"


def test_outputs_that_are_not_given_are_left_out():
    x = torch.randn(4)
    returned = (Returned("output", 1, (step(aten.view.default, [2, 2]),)), Returned("result", 0, given=False))
    (only,) = compile_output_builder(returned, (x,), (x,))((), (x,))
    assert only._base is x


@pytest.mark.parametrize("mode", (True, False))
def test_the_mode_is_put_back_where_a_view_raises(mode):
    returned = (Returned("result", 0, (step(aten.view.default, [5], grad=not mode),)),)
    with torch.set_grad_enabled(mode):
        outputs = compile_output_builder(returned, (), ())
        with pytest.raises(RuntimeError):
            outputs((), (torch.randn(4),))
        assert torch.is_grad_enabled() is mode


def test_a_version_and_a_view_older_than_the_last_writes():
    x = torch.zeros(3)
    x.add_(1).add_(1)
    returned = (Returned("result", 0, (step(aten.view.default, [3, 1]),), late=2), Returned("result", 0, version=7))
    older, same = compile_output_builder(returned, (x,), (x,))((), (x,))
    assert older._base is x and same is x and x._version == 7

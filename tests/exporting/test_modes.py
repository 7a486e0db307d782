"""Exported programs in the caller's modes: gradients on and off, inference, blocks that change them, errors inside."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dovetail
from dovetail.errors import GraphBreakError

from .checking import assert_same, check

X = torch.randn(3, 4, requires_grad=True)
MODES = [torch.enable_grad, torch.no_grad, torch.inference_mode]


def off(x):
    with torch.no_grad():
        y = x * 2
    return y, x + y


def on(x):
    with torch.enable_grad():
        y = x * 2
    return y, x + y


def nested(x):
    with torch.no_grad():
        y = x * 2
        with torch.set_grad_enabled(True):
            z = x * 3
        w = x * 4
    return y, z, w, x * 5


@torch.no_grad()
def decorated(x):
    return x * 2, torch.enable_grad()(torch.sin)(x)


def by_hand(x):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(before)
    return y, x * 3


def in_a_function(x):
    return (*torch.vmap(off)(x), x * 3, torch.utils.checkpoint.checkpoint(lambda x: off(x)[1], x, use_reentrant=False))


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient / 2


def without_gradients_of_its_own(x):
    return Halved.apply(x.detach()), x * 2


PROGRAMS = [off, on, nested, decorated, by_hand, in_a_function, without_gradients_of_its_own]


def facts(function, mode):
    with mode():
        found = [(t.requires_grad, t.is_inference()) for t in function(X)]
        return found, torch.is_grad_enabled()


@pytest.mark.parametrize("exported_in", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_run_in_the_callers_mode(program, exported_in, tmp_path):
    with exported_in():
        made = dovetail.export(program, (X,))
    made.save(tmp_path / "p")
    ways = [made.module(), dovetail.ExportedProgram.load(tmp_path / "p").module(), dovetail.compile(made.module())]
    for mode in MODES:
        for way in ways:
            assert facts(way, mode) == facts(program, mode)


def test_programs_are_exported_in_inference_mode():
    def program(x):
        return x.to(device=x.device, dtype=torch.float64), x.reshape(-1).contiguous(), off(x)[1]

    with torch.inference_mode():
        module = dovetail.export(program, (X,), None, ({0: "n"},)).module()
    for mode in MODES:
        assert facts(module, mode) == facts(program, mode)


def test_programs_that_leave_a_mode_are_refused():
    def leaves(x):
        torch.set_grad_enabled(True)
        return x * 2

    with pytest.raises(GraphBreakError, match="modes or context variables that are left changed"):
        dovetail.export(leaves, (X,))


def fails_without_gradients(x, index):
    with torch.no_grad():
        y = x[index]
    return y


def fails_in_half(x, index):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = (x @ x.t())[index]
    return y


@pytest.mark.parametrize("program", [fails_without_gradients, fails_in_half])
def test_modes_are_as_they_were_after_an_error(program):
    module = dovetail.export(program, (X, torch.tensor([0]))).module()
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            with pytest.raises(IndexError):
                module(X, torch.tensor([7]))
            assert torch.is_grad_enabled() == grad and not torch.is_autocast_enabled("cpu")
    torch.autocast_increment_nesting()
    assert torch.autocast_decrement_nesting() == 0


def test_training_goes_on_where_a_block_has_no_gradients():
    class Target(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            with torch.no_grad():
                target = self.layer(x)
            return (self.layer(x * 2) - target).pow(2).mean()

    model = Target()
    with torch.no_grad():
        module = dovetail.export(model, (X,)).module()
    found = torch.autograd.grad(module(X), [*module.parameters()])
    expected = torch.autograd.grad(model(X), [*model.parameters()])
    assert all(map(torch.equal, found, expected))


def inference_inside(x):
    with torch.inference_mode():
        y = x * 2
    return y, x * 3


@pytest.mark.parametrize("program", [inference_inside, torch.inference_mode()(inference_inside)])
def test_blocks_of_inference_mode_have_no_gradients(program, tmp_path):
    made = check(program, (X,), path=tmp_path / "p")
    for way in (made.module(), made.to_torch().module(), dovetail.compile(made.module())):
        assert [t.requires_grad for t in way(X)] == [t.requires_grad for t in program(X)]


class Forces(nn.Module):
    """An energy, and its derivative by the positions: as models of molecules are."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, positions):
        positions = positions.detach().requires_grad_()
        with torch.enable_grad():
            energy = self.net(positions).sum()
            (gradient,) = torch.autograd.grad(energy, [positions], create_graph=self.training)
        return energy, -gradient


@pytest.mark.parametrize("train", [False, True])
def test_derivatives_inside(train, tmp_path):
    model, x = Forces().train(train), X.detach()
    program = check(model, (x,), others=[(torch.randn(5, 4),)], dynamic_shapes=({0: "n"},), path=tmp_path / "p")
    with torch.no_grad():
        assert_same(program.module()(x), model(x))
    if train:
        module = program.module()
        module.load_state_dict(model.state_dict())
        given, wanted = ([torch.autograd.grad(m(x)[1].pow(2).sum(), [*m.parameters()][:2]) for m in (module, model)])
        assert_same(given, wanted)


def test_derivatives_by_the_parameters_inside():
    def program(x):
        return torch.autograd.grad((x * WEIGHT).sum(), WEIGHT)[0] * 2

    made = check(program, (X.detach(),))
    assert_same(made.to_torch().module()(X.detach()), program(X.detach()))


WEIGHT = nn.Parameter(torch.ones(4))

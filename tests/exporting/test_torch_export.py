"""To PyTorch's `ExportedProgram`: what we export, it runs, decomposes and saves. And what it exports, we compile."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch.export import Dim

import dovetail
from dovetail.errors import InvalidArgument
from tests.versions import VERSION

from .checking import assert_same, call
from .test_programs import MODELS, PROGRAMS

NOT_TORCHS = {"sizes", "random numbers"}  # it gives a tuple for torch.Size; numbers come in another order


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in NOT_TORCHS])
def test_functions_are_converted(name):
    function, args = PROGRAMS[name]
    made = dovetail.export(function, args).to_torch()
    assert isinstance(made, torch.export.ExportedProgram)
    assert_same(call(made.module(), args), call(function, args))


@pytest.mark.parametrize("name", MODELS)
def test_models_are_converted(name):
    model, args = copy.deepcopy(MODELS[name])
    made = dovetail.export(model, args).to_torch()
    assert {*made.state_dict} >= {*model.state_dict()}
    assert_same(call(copy.deepcopy(made).module(), args), call(copy.deepcopy(model), args))
    if VERSION >= (2, 13) or name != "recurrent layers":  # whose states have a dimension too many in 2.11
        assert_same(call(made.run_decompositions().module(), args), call(model, args))


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))

    def forward(self, x, y):
        return self.inner(x) + y.reshape(-1, 4), x.shape[0] * 2


def test_sizes_have_their_ranges():
    n = Dim("n", max=64)
    program = dovetail.export(Scaled(), (torch.randn(3, 4), torch.randn(12)), None, ({0: n}, {0: 4 * n}))
    made = program.to_torch()
    assert "VR[2, 64]" in map(str, made.range_constraints.values())
    file = io.BytesIO()
    torch.export.save(made, file)
    file.seek(0)
    module = torch.export.load(file).module()
    args = (torch.randn(7, 4), torch.randn(28))
    assert_same(call(module, args), call(program.module(), args))


def test_conditions_are_checked():
    program = dovetail.export(lambda x: x[::2] if x.shape[0] % 2 == 0 else x, (torch.randn(6),), None, ({0: "n"},))
    module = program.to_torch().module()
    assert module(torch.arange(4.0)).tolist() == [0, 2]
    with pytest.raises((RuntimeError, AssertionError, ValueError)):
        module(torch.arange(5.0))


def test_an_example_of_one_row_is_no_constant():
    program = dovetail.export(lambda x: x * 2, (torch.randn(1, 4),), None, ({0: "n"},))
    assert program.to_torch().module()(torch.ones(5, 4)).shape == (5, 4)


def blocks(x, y):
    with torch.no_grad():
        z = x * 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = x @ y
    return z + w.float(), x.shape[0]


class Module(torch.nn.Module):
    """torch.export takes modules alone."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def test_what_torch_exports_is_compiled():
    n = Dim("n", min=2, max=64)
    x, y = torch.randn(4, 3, requires_grad=True), torch.randn(3, 3)
    module = torch.export.export(Module(blocks), (x, y), dynamic_shapes=(({0: n}, None),), strict=False).module()
    compiled = dovetail.compile(module, fullgraph=True, dynamic=True)
    for rows in (4, 9, 17):
        x = torch.randn(rows, 3, requires_grad=True)
        assert_same(compiled(x, y), module(x, y), atol=2e-2, rtol=2e-2)
    (gradient,) = torch.autograd.grad(compiled(x, y)[0].sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(module(x, y)[0].sum(), x)[0], atol=2e-2, rtol=2e-2)
    with pytest.raises(AssertionError, match="Guard failed"):
        compiled(torch.randn(65, 3), y)


@pytest.mark.parametrize("name", MODELS)
def test_models_that_torch_exports_are_compiled(name):
    model, args = copy.deepcopy(MODELS[name])
    module = torch.export.export(model, args, strict=False).module()
    compiled = dovetail.compile(copy.deepcopy(module), fullgraph=True, options={"fallback_random": True})
    expected, result = call(module, args), call(compiled, args)
    assert_same(result, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_our_modules_are_compiled(name):
    model, args = copy.deepcopy(MODELS[name])
    module = dovetail.export(model, args).module()
    compiled = dovetail.compile(copy.deepcopy(module), fullgraph=True, options={"fallback_random": True})
    assert_same(call(compiled, args), call(module, args), atol=1e-4, rtol=1e-4)
    if args[0].is_floating_point():
        assert_same(_gradients(compiled, args), _gradients(module, args), atol=1e-3, rtol=1e-3)


def _gradients(module, args):
    total = sum(t.sum() for t in torch.utils._pytree.tree_leaves(call(module, args)[0]))
    return torch.autograd.grad(total, [*module.parameters()], allow_unused=True)


def test_our_modules_are_compiled_for_sizes_that_vary():
    n = Dim("n")
    module = dovetail.export(Scaled(), (torch.randn(3, 4), torch.randn(12)), None, ({0: n}, {0: 4 * n})).module()
    compiled = dovetail.compile(copy.deepcopy(module), fullgraph=True, dynamic=True)
    for n in (3, 8, 21):
        args = torch.randn(n, 4), torch.randn(4 * n)
        assert_same(compiled(*args), module(*args), atol=1e-5, rtol=1e-5)
    with pytest.raises(InvalidArgument, match="the program is exported for 12"):
        dovetail.compile(module)(torch.randn(3, 4), torch.randn(8))


def test_what_torch_exports_is_exported():
    module = torch.export.export(Module(blocks), (torch.randn(4, 3), torch.randn(3, 3)), strict=False).module()
    program = dovetail.export(module, (torch.randn(4, 3), torch.randn(3, 3)))
    args = torch.randn(4, 3), torch.randn(3, 3)
    assert_same(program.module()(*args), module(*args))


def test_a_size_that_only_torchs_exporter_makes_a_constant_of():
    program = dovetail.export(torch.nn.LSTM(4, 3), (torch.randn(5, 2, 4),), dynamic_shapes=({0: "time", 1: "b"},))
    with pytest.raises(InvalidArgument, match=r"makes input.shape\[0\] \(time\) the constant 5"):
        program.to_torch()


def test_what_torchs_exporter_has_no_form_for():
    program = dovetail.export(lambda x: (x, x.dtype), (torch.ones(2),))
    with pytest.raises(InvalidArgument, match=r"exporter cannot express this program: .*torch\.dtype"):
        program.to_torch()

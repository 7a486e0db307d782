"""Names of arguments and of parts of models that mean something else in generated code, or that Python cannot write."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dovetail
from dovetail.errors import InvalidArgument

from .checking import check

X = torch.randn(3, 4)
ARGUMENTS = ["torch", "self", "pytree", "fx_pytree", "device", "inf", "getattr", "slice", "graph", "x_0", "_leaves"]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name, tmp_path):
    found = {"math": __import__("math"), "T": torch}
    text = f"{name}.exp()[1:] * float('inf') + y.to('cpu').T.T[1:] * math.sqrt({name}.shape[0])"
    exec(f"def program({name}, y): return {text}, T.zeros(2, device='cpu')", found)
    shapes = ({0: "n"},) * 2
    program = check(found["program"], (X, X), others=[(X[1:], X[1:])], dynamic_shapes=shapes, path=tmp_path / "p")
    if name != "self":
        assert program.module()(y=X, **{name: X})[0].shape == (2, 4)


def test_arguments_that_are_called_alike():
    def program(x_0, *x, d, d_a, **more):
        return x_0 + 2 * x[0] + 3 * x[1] + 4 * d["a"] + 5 * d_a + 6 * more["x_1"]

    check(program, tuple(X * k for k in range(3)), {"d": {"a": X * 5}, "d_a": X * 7, "x_1": X * 9})


class Parts(nn.Module):
    """With names of methods of GraphModule, keywords and whatever else a dictionary's key can be."""

    def __init__(self):
        super().__init__()
        self.graph, self.code = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.layers = nn.ModuleDict({name: nn.Linear(4, 4) for name in ("in", "class", "a b", "0", "q'\"u")})
        self._graphs = self._constants = nn.Linear(4, 4)
        self.true_0 = self.checkpointed_0 = nn.Parameter(torch.ones(4))
        self.register_parameter("not", nn.Parameter(torch.ones(4)))
        self.register_buffer("recompile", torch.zeros(4))
        self.register_buffer("if", torch.zeros(4))
        self._weight, self._code = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
        self.table = torch.ones(4)

    def forward(self, x):
        x = self.code(self.graph(x)) * getattr(self, "not") + self._constants(x) * self.table + self._code
        for layer in self.layers.values():
            x = layer(x)
        self.recompile = self.recompile + x.sum(0)
        self.code.running_mean = self.code.running_mean * 2
        setattr(self, "if", x.sum(0))
        x = torch.cond(x.sum() > 0, lambda x: x * self.true_0, lambda x: x - 1, (x,))
        return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False) + self.recompile * self._weight


def test_parts_of_models(tmp_path):
    model = Parts()
    program = check(model, (X,), others=[(X + 1,), (X * 2,)], path=tmp_path / "p", atol=1e-5, rtol=1e-5)
    module = program.module()
    assert [*module.state_dict()] == [*model.state_dict()]
    assert [n for n, _ in module.named_parameters()] == [n for n, _ in model.named_parameters()]
    compiled = dovetail.compile(program.module())
    torch.testing.assert_close(compiled(X), program.module()(X))
    with pytest.raises(InvalidArgument, match="has no tensors that are called not, _code, recompile, if, graph"):
        program.to_torch()

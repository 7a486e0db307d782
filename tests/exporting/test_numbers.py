"""What programs compute of sizes in Python, decide by it and give of it: right for every size, or refused."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import nn

import dovetail
from dovetail.errors import GraphBreakError, InvalidArgument

from .checking import assert_same

COMPUTED = {
    "floats": lambda x: x * (x.shape[0] / 2) + x.shape[0] ** 0.5,
    "functions of math": lambda x: x * math.sqrt(x.shape[0]) / math.log(max(x.shape[0], 3) / 2),
    "integers": lambda x: x * math.ceil(math.log2(x.shape[0])) + math.gcd(x.shape[0], 6) + 2 ** x.shape[0],
    "sizes of floats": lambda x: (x[: int(x.shape[0] * 0.5)], x[: round(x.shape[0] * 0.75)], x[: abs(2 - x.shape[0])]),
    "sizes of bits": lambda x: x.new_zeros(x.shape[0] >> 1, x.shape[0] ^ 1),
    "bytes": lambda x: x * x.nbytes,
    "sizes as results": lambda x: (x[: x.shape[0] // 2].shape, -x.shape[0], x.numel() % 5),
}
DECIDED = {
    "halves": (lambda x: x * 2 if x.shape[0] / 2 > 3 else x, "n / 2 <= 3"),
    "rounded": (lambda x: x * 2 if int(x.shape[0] * 0.5) > 1 else x, "int(n * 0.5) > 1"),
    "bits": (lambda x: x * 2 if x.shape[0] & 1 else x, "(n & 1) == 0"),
    "equal": (lambda x: x * 2 if float(x.shape[0]) == 4.0 else x, "float(n) == 4.0"),
    "results": (lambda x: (x, x.shape[0] / 2 > 1.7), "n / 2 > 1.7"),
    "strides": (lambda x: x[: x.shape[0] // 2 * 2].view(-1, 2, 3), None),
    "lengths": (lambda x: [x] * int(x.shape[0] * 0.5), "int(n * 0.5) == 2"),
}  # fmt: skip
X = torch.randn(4, 3)


def check(program, path):
    made = dovetail.export(program, (X,), None, ({0: "n"},))
    made.save(path)
    module = dovetail.ExportedProgram.load(path).module()
    compiled = dovetail.compile(module, dynamic=True)
    fitting = 0
    for n in range(1, 10):
        x = torch.randn(n, 3)
        try:
            result = module(x)
        except InvalidArgument:
            continue
        assert_same(result, program(x))
        assert_same(compiled(x), program(x), atol=1e-4, rtol=1e-4)
        fitting += 1
    return made, fitting


@pytest.mark.parametrize("name", COMPUTED)
def test_numbers_are_computed(name, tmp_path):
    assert check(COMPUTED[name], tmp_path / "p")[1] == 9


@pytest.mark.parametrize("name", DECIDED)
def test_decisions_are_checked(name, tmp_path):
    program, condition = DECIDED[name]
    made, fitting = check(program, tmp_path / "p")
    assert [str(c) for c in made.signature.conditions] == ([condition] if condition else [])
    assert 1 <= fitting <= 9


class Chooses(nn.Module):
    def __init__(self):
        super().__init__()
        self.tensors, self.numbers = [torch.full((3,), float(k)) for k in range(9)], {k: k * 10 for k in range(9)}


class ChoosesTensors(Chooses):
    def forward(self, x):
        return x * self.tensors[x.shape[0]]


class ChoosesNumbers(Chooses):
    def forward(self, x):
        return x * self.numbers[x.shape[0]]


REFUSED = {
    "a tensor by a size": (ChoosesTensors(), "relies on (0 <= x.shape[0] < len(self.tensors)"),
    "a number by a size": (ChoosesNumbers(), "relies on (x.shape[0] in self.numbers)"),
    "a text of a size": (lambda x: x if str(x.shape[0]) == "4" else -x, "relies on (format(str(x.shape[0])"),
    "a text as a result": (lambda x: (x, f"{x.shape[0]} rows"), "the result has a text or a float"),
    "a shape's text as a result": (lambda x: (x, repr(x.shape)), "the result has a text or a float"),
    "a float as a result": (lambda x: x.shape[0] / 2, "the result has a text or a float made of a size that varies"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_graph_computes_is_refused(name):
    program, words = REFUSED[name]
    with pytest.raises(GraphBreakError, match=re.escape(words)):
        dovetail.export(program, (X,), None, ({0: "n"},))


def test_a_declared_size_that_follows_from_another_by_floats():
    def program(x, y):
        return x.new_ones(int(x.shape[0] * 0.5), 3) + y

    with pytest.raises(InvalidArgument, match=r"x.shape\[0\] \(n\) and y.shape\[0\] \(m\) are declared as sizes of"):
        dovetail.export(program, (X, X[:2]), None, ({0: "n"}, {0: "m"}))
    module = dovetail.export(program, (X, X[:2]), None, ({0: "n"}, {0: torch.export.Dim.AUTO})).module()
    assert module(torch.ones(7, 3), torch.ones(3, 3)).sum() == 18
    with pytest.raises(InvalidArgument, match=r"int\(n \* 0.5\) == s1; here .* \(n\) = 7, y.shape\[0\] = 2"):
        module(torch.ones(7, 3), torch.ones(2, 3))


def test_numbers_in_torchs_programs():
    made = dovetail.export(COMPUTED["floats"], (X,), None, ({0: "n"},)).to_torch()
    x = torch.randn(7, 3)
    torch.testing.assert_close(made.module()(x), COMPUTED["floats"](x))

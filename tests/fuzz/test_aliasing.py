"""Random programs over views, writes and gradients, the same ones on every machine. More: `make fuzz-aliasing`."""

from __future__ import annotations

import pytest

from tests.fuzz.aliasing.__main__ import COMMAND
from tests.fuzz.aliasing.check import Side, check, compare
from tests.fuzz.aliasing.generate import generate

PROGRAM = """
import torch


def make_inputs():
    x = torch.ones(3, requires_grad=True)
    return [x], []


def program(x):
    y = x * 2
    return y, {result}


def afterwards(see, args, kept, out, x):
    see(lambda: out[1].add_(1))
    see(lambda: (out[0] * out[0]).sum().backward())
"""


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_random_programs(start):
    found = {seed: COMMAND.run(seed).difference for seed in range(start, start + 20)}
    assert {seed: words for seed, words in found.items() if words} == {}


def test_the_same_seed_gives_the_same_program():
    assert generate(3) == generate(3)


def called(result: str) -> Side:
    side = Side(PROGRAM.format(result=result), "<checked>", None)
    side.call(0, again=False)
    return side


@pytest.mark.parametrize("result,kind", [
    ("y[:2]", None), ("y[:2].clone()", "memory"), ("y[:2].detach()", "requires_grad"), ("y[1:]", "memory"),
    ("x.detach()[:2]", "memory"), ("(y.mul_(1), y[:2])[1]", "version"), ("y[:2] * 1.01", "memory"),
    ("y[::2]", "strides"), ("y.as_strided((2,), (1,)).view(2)", None),
])  # fmt: skip
def test_the_checker_sees_differences(result, kind):
    found = compare(called(result), called("y[:2]"))
    assert (found and found[0]) == kind


UNNOTICED = """
import torch


def make_inputs():
    x = torch.ones(3, requires_grad=True)
    return [x], [x]


def program(x):
    return {made}


def afterwards(see, args, kept, out, x):
    see(lambda: x.data.add_(1))
    see(lambda: out[0].sum().backward())
"""


BETWEEN = UNNOTICED.replace("    return {made}", "    y = {made}\n    x.data = x.data * 2\n    return y").replace(
    "    see(lambda: x.data.add_(1))\n", ""
)


@pytest.mark.parametrize("program", [UNNOTICED, BETWEEN])
@pytest.mark.parametrize("made,different", [
    ("[x.sin().exp()]", False), ("[x * x]", False),
    ("[x * 3 - x.detach() if torch.compiler.is_compiling() else x * 2]", True),
])  # fmt: skip
def test_gradients_after_a_write_that_nobody_notices(made, different, program):
    """Those of a program that is wrong without the write are different all the same."""
    assert bool(check(program.format(made=made), "dovetail").difference) is different


SHARED = """
import torch


def make_inputs():
    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    return [x, y], []


def program(x, y):
    return torch.stack([x, y])


def afterwards(see, args, kept, out, x, y):
    see(lambda: torch.autograd.grad(out[0].sum(), args))
"""


def test_the_memory_of_gradients_is_the_engines_business():
    assert not check(SHARED, "aot_eager").difference


RESHAPED = """
import torch


def make_inputs():
    return [torch.ones((), requires_grad=True)], []


def program(x):
    y = x.sin()
    with torch.no_grad():
        x.unsqueeze_(0)
    return {}


def afterwards(see, args, kept, out, x):
    see(lambda: out[0].sum().backward())
"""


@pytest.mark.parametrize("result,kind", [
    ("x * 2", ""), ("x * 3 - x.detach() if torch.compiler.is_compiling() else x * 2", "grad"),
])  # fmt: skip
def test_the_gradient_of_a_leaf_that_was_reshaped(result, kind):
    assert check(RESHAPED.format(result), "aot_eager").kind == kind

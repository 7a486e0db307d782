"""float16 without the processor's help: every value, both ways, and no call of a run-time library."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest
import torch

from dovetail.codegen.cpu import Processor, generate
from dovetail.ir.loops import Const, Op
from tests.codegen.harness import check_pointwise, op, pointwise

PLAIN = (Processor(16, False, True, False), Processor(32, False, True, False), Processor(64, True, True, False))
EVERY = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)


@pytest.mark.parametrize("target", PLAIN)
def test_every_float16_widens_exactly(target):
    check_pointwise(lambda a: Op("cast", (a,), torch.float32), EVERY.float(), EVERY, target=target)


@pytest.mark.parametrize("target", PLAIN)
def test_float32_rounds_to_nearest_even(target):
    exact = EVERY[EVERY.isfinite()].float()
    middle = (exact + torch.nextafter(exact.half(), torch.tensor(float("inf")).half()).float()) / 2
    bits = torch.randint(-(2**31), 2**31, (20000,)).to(torch.int32).view(torch.float32)
    tiny = torch.randn(5000) * 2.0**-20
    edges = torch.tensor([65504.0, 65519.9, 65520.0, 65536.0, 1e30, float("inf"), float("nan"), 2.0**-24, 2.0**-25])
    x = torch.cat([exact, middle, torch.nextafter(middle, torch.tensor(0.0)), bits, tiny, edges, -edges])
    check_pointwise(lambda a: Op("cast", (a,), torch.float16), x.half(), x, target=target)


@pytest.mark.parametrize("target", PLAIN)
def test_zeros_keep_their_sign(target):
    x = torch.tensor([0.0, -0.0, 1e-30, -1e-30] * 9)
    check_pointwise(lambda a: Op("bitcast", (Op("cast", (a,), torch.float16),), torch.int16),
                    x.half().view(torch.int16), x, target=target)


def test_a_number_negated_between_roundings():
    """For which LLVM calls a function by a name of its own."""
    x = torch.cat([torch.randn(40, dtype=torch.float64), torch.tensor([1 + 2**-11 + 2**-30, 65519.999, float("nan")])])
    narrow = lambda a: Op("cast", (Op("cast", (op("neg", a),), torch.float32),), torch.float16)
    again = lambda a: op("add", narrow(a), Const(1.0, torch.float16))
    check_pointwise(again, (-x).half() + 1, x)


@pytest.mark.parametrize("target", PLAIN)
def test_a_processor_without_float16_needs_no_run_time_library(target):
    """Compiled for the first x86-64, whose vectors are 16 bytes wide."""
    if not llvm.get_process_triple().startswith("x86_64"):
        pytest.skip("the processor is of another family")
    x = torch.randn(40).half()
    group = pointwise(lambda a: op("add", op("exp", a), op("neg", a)), {"x": x}, torch.empty_like(x))
    text = generate(group, None, target).text
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu="x86-64", features="", opt=2)
    assembly = machine.emit_assembly(llvm.parse_assembly(text))
    assert "hfsf" not in assembly and "sfhf" not in assembly

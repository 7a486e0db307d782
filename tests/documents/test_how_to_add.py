"""How to add things: each section's code is run, does what the section says, and is taken out again."""

from __future__ import annotations

import binascii
import copy
import opcode
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import dovetail
from dovetail import targets
from dovetail.bytecode import instructions
from dovetail.bytecode.decode import Code, _plans
from dovetail.bytecode.pythons import HERE
from dovetail.capture.driver import capture
from dovetail.capture.library import all as library  # fills the tables
from dovetail.capture.tables.known_callables import FOLDED, KNOWN, STANDINS
from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import Group, LibraryCall
from dovetail.lower import lower
from dovetail.normalize import normalize
from dovetail.ops.table import ROWS
from dovetail.options import Options
from dovetail.schedule import schedule
from dovetail.schedule.fusion import fuse

from .blocks import blocks, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to-add.md"
FILLED = library
TABLES = (ROWS, instructions.ROWS, FOLDED, KNOWN, STANDINS, targets.TARGETS)


def added(section: str) -> dict[str, Any]:
    """What the blocks of a section define, in order, as one program."""
    _, _, text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")
    scope: dict[str, Any] = {"__name__": "added"}
    for block in blocks(PAGE, text.partition("\n## ")[0]):
        run(block, scope)
    return scope


@contextmanager
def restored() -> Iterator[None]:
    """What is added to the tables is taken out, and so is what was compiled with it."""
    before = [copy.copy(table) for table in TABLES]
    dovetail.reset()
    try:
        yield
    finally:
        for table, kept in zip(TABLES, before, strict=True):
            table.clear()
            table.update(kept)
        _plans.cache_clear()
        dovetail.reset()


def lowered(fn: Any, *args: Any) -> Any:
    with torch.no_grad():
        captured = capture(fn, args, {}, Options())
        return lower(normalize(captured.graph, [given.fake for given in captured.inputs], Options()), Options())


@pytest.mark.parametrize("eps", [None, 0.125])
def test_an_operator(eps: float | None) -> None:
    def f(grad, x):
        return torch.ops.aten.logit_backward(grad, x, eps)

    grad, x = torch.linspace(1, 2, 50), torch.linspace(-0.2, 1.2, 50)
    with restored():
        assert isinstance(lowered(f, grad, x).items[0], LibraryCall)
        ROWS.update(added("An operator")["ROWS"])
        assert isinstance(lowered(f, grad, x).items[0], Group)
        torch.testing.assert_close(dovetail.compile(f, fullgraph=True)(grad, x), f(grad, x), equal_nan=True)
        torch.testing.assert_close(evaluate(lowered(f, grad, x), [grad, x])[0], f(grad, x), equal_nan=True)


def test_an_opcode() -> None:
    """In a Python that calls LOAD_FAST so, code means what it means here."""

    def f(a, b):
        return a + b * a

    names = ["LOAD_FAST_AGAIN" if name == "LOAD_FAST" else name for name in opcode.opname]
    assert HERE is not None
    with restored():
        added("An opcode")
        _plans.cache_clear()  # made of the rows when the first code was decoded
        plain, renamed = (Code(f.__code__, HERE, known) for known in (opcode.opname, names))
    shown = [[(i.name, i.value) for i in code.instructions] for code in (plain, renamed)]
    assert shown[0] == shown[1] and ("LOAD_FAST", "a") in shown[0]


@pytest.mark.parametrize("function", [
    lambda x: x * (zlib.crc32(b"ab") % 7), lambda x: x * (zlib.adler32(b"ab") % 7),
    lambda x: x * len(binascii.hexlify(b"ab")),
])
def test_a_builtin(function: Any) -> None:
    x = torch.ones(3)
    with restored():
        with pytest.raises(dovetail.Unsupported, match="opaque-call"):
            dovetail.compile(function, fullgraph=True)(x)
        added("A builtin")
        dovetail.reset()
        assert torch.equal(dovetail.compile(function, fullgraph=True)(x), function(x))


def test_a_target() -> None:
    def f(x):
        return (x + 1).sum(-1)

    x = torch.ones(2, 3)
    with restored():
        target = added("A target")["target"]
        assert torch.equal(dovetail.compile(f, fullgraph=True)(x), f(x))
    assert target.asked


def kernels(program: Any) -> int:
    return sum(isinstance(item, Group) for item in program.items)


def test_a_fusion_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x):
        return x - x.sum(-1, keepdim=True), x.exp()

    x = torch.linspace(-1, 1, 64 * 8).reshape(64, 8)
    monkeypatch.setattr(fuse, "_pays", fuse._pays)  # put back at the end
    before = schedule(lowered(f, x), Options())
    added("A fusion rule")
    after = schedule(lowered(f, x), Options())
    assert kernels(before) < kernels(after)
    for one, other in zip(evaluate(before, [x]), evaluate(after, [x]), strict=True):
        assert torch.equal(one, other)

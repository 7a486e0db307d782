"""From the program of few turns to that of many: what both compute is evaluated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import Program
from dovetail.ir.parse import parse_program
from dovetail.ir.spec import verify
from dovetail.repeats import Irregular, Row, Unfolding
from dovetail.repeats.rows import Place, fixed


def chain(turns: int) -> str:
    """h = h * w + x for each turn, then h - x."""
    lines = [f"input a{k}: float32[4]" for k in range(turns + 1)]
    for k in range(turns):
        before = f"b{k - 1}" if k else "a0"
        lines += [f"temporary b{k}: float32[4]", f"group k{k}_mul for x{k} < 4", "  loop"]
        lines += [f"    b{k}[x{k}] = {before}[x{k}] * a{k + 1}[x{k}] + a0[x{k}]"]
    return "\n".join([*lines, *_last(turns, f"b{turns - 1}[y] - a0[y]")])


def _last(turns: int, value: str) -> list[str]:
    result = f"output b{turns}"
    return [f"{result}: float32[4]", f"group k{turns}_sub for y < 4", "  loop", f"    b{turns}[y] = {value}", result]


def counted(turns: int) -> str:
    """The end adds something up, once for each turn."""
    return chain(turns).replace("- a0[y]", "- a0[y]" + " + sin(a0[y])" * turns)


def remembered(turns: int) -> str:
    """The end reads what all turns have computed."""
    return chain(turns).replace("- a0[y]", "".join(f" + b{k}[y]" for k in range(turns - 1)))


def looked_back(turns: int) -> str:
    """Each turn reads what the one before the last has computed."""
    text = chain(turns)
    for k in range(2, turns):
        text = text.replace(f"a{k + 1}[x{k}] + a0[x{k}]", f"a{k + 1}[x{k}] + b{k - 2}[x{k}]")
    return text


def crossed(turns: int) -> str:
    """The inputs of two turns change places."""
    return chain(turns).replace("* a2[", "* t[").replace("* a3[", "* a2[").replace("* t[", "* a3[")


def gradients(turns: int) -> str:
    """From the last turn to the first, with a result for each: g = g * w; d = g * x."""
    lines = [f"input a{k}: float32[4]" for k in range(turns + 1)]
    for k in reversed(range(turns)):
        before = "a0" if k == turns - 1 else f"b{k + 1}"
        lines += [f"temporary b{k}: float32[4]", f"output c{k}: float32[4]", f"group k{k}_mul for x{k} < 4", "  loop"]
        lines += [f"    b{k}[x{k}] = {before}[x{k}] * a{k + 1}[x{k}]", f"    c{k}[x{k}] = b{k}[x{k}] + a0[x{k}]"]
    return "\n".join([*lines, *(f"output c{k}" for k in range(turns))])


MORE, FEW = 6, 4


def row(turns: int, head: int, more: int) -> Row:
    head_places = tuple(fixed(head))
    short, whole = ((*head_places, *(Place(0, k) for k in range(n))) for n in (turns, turns + more))
    return Row(short, whole, more)


def unfolded(made: Callable[[int], str], results: Row | None = None) -> Program:
    few, fewer = (parse_program(made(n)) for n in (FEW, FEW - 1))
    return Unfolding(row(FEW, 1, MORE), (fewer, fewer), results)(few, few, lambda program: program)


@pytest.mark.parametrize(("made", "results"), [(chain, None), (gradients, row(FEW, 0, MORE))])
def test_it_computes_what_all_turns_compute(made, results):
    whole = unfolded(made, results)
    verify(whole)
    inputs = [torch.linspace(0.5, 1.5, 4) + k / 8 for k in range(FEW + MORE + 1)]
    assert len(whole.items) == len(parse_program(made(FEW + MORE)).items)
    for mine, its in zip(evaluate(whole, inputs), evaluate(parse_program(made(FEW + MORE)), inputs), strict=True):
        assert torch.equal(mine, its)


@pytest.mark.parametrize("made", [counted, remembered, looked_back, crossed])
def test_what_is_another_program_for_another_number_of_turns_is_refused(made):
    with pytest.raises(Irregular):
        unfolded(made)

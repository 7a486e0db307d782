"""What follows a graph break is spoken of as the program does: names, expressions, and its own lines."""

from __future__ import annotations

import logging
import os

import pytest
import torch

import dovetail


def local(x, k):
    h = x.sin()
    dovetail.graph_break()
    return h + 1


def closed_over(x, k):
    h = x.sin()

    def inner():
        return h + 1

    inner()
    dovetail.graph_break()
    return h + 1


def result(x, k):
    size = int(os.path.getsize(os.devnull) + k) % 3
    dovetail.graph_break()
    return x + size if size > 1 else x


def instruction(x, k):
    return x + 1 if abs(x.sum().item()) > 4 else x


def item(x, k):
    for letter in iter("ab" * k):
        x = x + 1 if letter == "a" else x * 2
    return x


def below(x, k):
    return x.cos() * (x + float(x.sum()))


#: What a second call with other sizes and numbers says to have changed.
SAID = {
    "local": (local, "tensor 'h' size mismatch at index 0. expected 2, actual 3"),
    "closed over": (closed_over, "tensor 'h' size mismatch at index 0. expected 2, actual 3"),
    "a number": (result, "size == 1 (actual 2)"),
    "what an instruction gave": (instruction, "x.sum().item() == 2.0 (actual 3.0)"),
    "what an expression had computed": (below, "tensor '<value in line {line}>' size mismatch at index 0."),
}


@pytest.fixture
def recompiles(caplog):
    with caplog.at_level(logging.INFO, "dovetail.recompiles"):
        yield lambda: "\n".join(r.getMessage() for r in caplog.records if r.name == "dovetail.recompiles")


@pytest.mark.parametrize("case", SAID)
def test_values_have_the_names_of_the_program(case, recompiles) -> None:
    fn, words = SAID[case]
    compiled = dovetail.compile(fn, backend="eager")
    for k in (1, 2):
        torch.testing.assert_close(compiled(torch.ones(k + 1), k), fn(torch.ones(k + 1), k))
    assert words.format(line=fn.__code__.co_firstlineno + 1) in recompiles(), recompiles()


def test_the_reason_of_a_break_has_them_too() -> None:
    def write(x):
        open(os.devnull, "w").write("")
        return x + 1

    reasons = [cause.reason for cause in dovetail.explain(write)(torch.ones(2)).break_reasons]
    assert any('open(os.devnull, "w").write changes a stream' in reason for reason in reasons), reasons


def test_symbolic_sizes_have_them_too() -> None:
    x = torch.ones(5)
    dovetail.mark_dynamic(x, 0)
    assert any(": h.shape[0], any value" in text for text in dovetail.explain(local)(x, 1).sizes)


def test_a_break_within_python_is_told_of_the_line_of_the_program(recompiles) -> None:
    def within(x):
        h = x.sin()
        return h + os.path.getsize(os.devnull)

    compiled = dovetail.compile(within, backend="eager")
    compiled(torch.ones(2)), compiled(torch.ones(3))
    line = within.__code__.co_firstlineno + 2
    assert f"within (resumed) in {__file__}:{line}\n" in recompiles()
    assert any(seen.place.line == line for seen in dovetail.diagnostics.breaks.BREAKS.all())


def test_a_text_that_is_empty_is_not_shown(caplog) -> None:
    with caplog.at_level(logging.INFO, "dovetail.dynamic"):
        dovetail.compile(lambda x: x + 1, dynamic=False)(torch.ones(3))
    assert [r.getMessage() for r in caplog.records if r.name == "dovetail.dynamic"] == []

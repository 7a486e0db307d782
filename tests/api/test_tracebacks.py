"""What a caller sees of an error: the frames of the program."""

from __future__ import annotations

import os
import traceback
from typing import Any

import pytest
import torch

import dovetail

X = torch.ones(2, 3)
PACKAGE = os.path.dirname(dovetail.__file__)


def refused(x):
    return len(open(__file__).readlines()) + x


def wrong(x):
    return x @ x


class Wrong(torch.nn.Module):
    def forward(self, x):
        return wrong(x)


def raised(call: Any, *args: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        call(*args)
    return caught.value


def frames(error: Exception) -> list[str]:
    """The functions' names, of Dovetail's only that they are."""
    entries = traceback.extract_tb(error.__traceback__)
    return ["ours" if e.filename.startswith((PACKAGE, "<dovetail")) else e.name for e in entries]


def test_an_error_of_the_program_has_the_programs_frames() -> None:
    for fullgraph in (False, True):
        assert frames(raised(dovetail.compile(wrong, fullgraph=fullgraph), X)) == ["raised", "wrong"]


def test_so_has_one_of_a_module() -> None:
    assert frames(raised(dovetail.compile(Wrong()), X))[0] == "raised"
    assert frames(raised(dovetail.compile(Wrong()), X))[-2:] == ["forward", "wrong"]


def test_so_has_one_of_code_that_was_compiled_before() -> None:
    compiled = dovetail.compile(lambda x, i: x[i])
    compiled(X, torch.tensor([1]))
    error = raised(compiled, X, torch.tensor([7]))
    assert type(error) is IndexError and frames(error) == ["raised", "<lambda>"]


def test_a_graph_break_is_told_once_and_shortly() -> None:
    error = raised(dovetail.compile(refused, fullgraph=True), X)
    assert isinstance(error, dovetail.GraphBreakError) and frames(error) == ["raised"]
    text = "".join(traceback.format_exception(error))
    assert text.count("[opaque-call]") == 1 and len(text.splitlines()) <= 15


def test_verbose_shows_all_frames() -> None:
    with dovetail.config.patch(verbose=True):
        error = raised(dovetail.compile(refused, fullgraph=True), X)
        assert frames(error).count("ours") > 3 and error.__cause__ is not None
        assert frames(raised(dovetail.compile(wrong), X)).count("ours") > 3


def test_the_context_of_an_error_stays() -> None:
    def failing(x):
        try:
            return x @ x
        except RuntimeError as error:
            raise ValueError("no") from error

    ours, eagers = raised(dovetail.compile(failing), X), raised(failing, X)
    assert repr(ours) == repr(eagers) and repr(ours.__cause__) == repr(eagers.__cause__)

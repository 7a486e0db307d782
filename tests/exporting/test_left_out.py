"""What a program shows is left out of its export: neither shown then nor computed later, and named in one warning."""

from __future__ import annotations

import functools
import logging
import sys
import warnings

import pytest
import torch

import dovetail

from .checking import assert_same, call

X = torch.randn(3, 4)
LOGGER = logging.getLogger(__name__)


def own(x):
    raise AssertionError("shown")


def prints(x):
    y = x * 2
    print("sum", y.sum(), (x * 7).mean(), file=sys.stderr)
    print(f"largest {y.max()}")
    return y.add_(1)


def logs(x):
    LOGGER.warning("std %s", x.std(), extra={"model": object()})
    LOGGER.warning("again")
    LOGGER.debug("never")
    return x + 1


def warns(x):
    warnings.warn(f"look at {x.exp()}", stacklevel=1)
    sys.stdout.write("text")
    return x + 1


def calls_its_own(x):
    own(x.exp())
    return x + 1


@functools.cache
def once():
    LOGGER.warning("once")


def warns_once(x):
    once()
    return x + 1


def inside_of_others(x):
    def shown(x):
        print(x.sum())
        return x.sin()

    return torch.vmap(shown)(x), torch.utils.checkpoint.checkpoint(shown, x, use_reentrant=False)


def draws_for_it(x):
    print(torch.rand(3))
    return torch.nn.functional.dropout(x)


LEFT_OUT = {
    prints: ("print", 2), logs: ("Logger.warning", 1), warns: ("warnings.warn, TextIOWrapper.write", 1),
    calls_its_own: ("own", 1), warns_once: ("Logger.warning", 1), inside_of_others: ("print", None),
    draws_for_it: ("print", 2),
}  # fmt: skip


@pytest.mark.parametrize("program", LEFT_OUT)
def test_what_is_shown_is_left_out(program, capfd, caplog, monkeypatch):
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    functions = dovetail.config.reorderable_logging_functions
    monkeypatch.setattr(dovetail.config, "reorderable_logging_functions", {*functions, own})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        made = dovetail.export(program, (X,))
        result = call(made.module(), (X,))
    names, nodes = LEFT_OUT[program]
    assert [str(w.message) for w in warned] == [f"dovetail.export: the exported program does not call {names}"]
    assert warned[0].filename == __file__
    assert [*capfd.readouterr()] == ["", ""] and not caplog.records
    assert nodes is None or sum(n.op.startswith("call") for n in made.graph.nodes) == nodes
    if program is not calls_its_own:
        with warnings.catch_warnings(action="ignore"):
            assert_same(result, call(program, (X,)))


def test_what_must_not_be_left_out(monkeypatch):
    monkeypatch.setattr(dovetail.config, "reorderable_logging_functions", set())
    with pytest.raises(dovetail.GraphBreakError, match="print is called where it stands"):
        dovetail.export(prints, (X,))

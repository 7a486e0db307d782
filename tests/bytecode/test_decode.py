"""Decoded instructions against `dis`, on every code object of a few standard modules."""

from __future__ import annotations

import importlib.util

import pytest

from dovetail.bytecode import decode

from .checks import CHECKS, OF_THE_TABLES, codes

MODULES = """argparse ast collections contextlib dataclasses enum functools inspect json.decoder typing
asyncio.tasks""".split()


def module_code(name):
    return importlib.util.find_spec(name).loader.get_code(name)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MODULES)
def test_agrees_with_dis(name, check):
    for code in codes(module_code(name)):
        check(code)


@pytest.mark.parametrize("check", OF_THE_TABLES, ids=lambda check: check.__name__)
def test_tables(check):
    check()


def test_a_branch_tests_what_was_computed():
    """Whether Python converts to a bool before it branches or while it does is not to be seen."""
    instructions = decode(compile("if a < b and not c: d", "", "exec")).instructions
    assert "TO_BOOL" not in [i.name for i in instructions]
    assert [i.flag for i in instructions if i.name == "COMPARE_OP"] == [0]


def test_innermost_region_wins():
    def nested():
        try:
            try:
                raise ValueError
            except KeyError:
                return 1
        except ValueError:
            return 2

    decoded = decode(nested.__code__)
    index = next(k for k, i in enumerate(decoded.instructions) if i.name == "RAISE_VARARGS")
    inner = decoded.region(index)
    outer = [r for r in decoded.regions if r.start <= index < r.end]
    assert inner is outer[0] and inner.end - inner.start == min(r.end - r.start for r in outer)


def test_positions_name_the_expression():
    def add(a, b):
        return a + b

    decoded = decode(add.__code__)
    index = next(k for k, i in enumerate(decoded.instructions) if i.name == "BINARY_OP")
    line, _, column, end = decoded.position(index)
    assert line == add.__code__.co_firstlineno + 1 and end - column == len("a + b")


def test_decoding_is_cached():
    assert decode(codes.__code__) is decode(codes.__code__)

"""Decoded instructions against `dis`, on every code object of a few standard modules."""

from __future__ import annotations

import importlib.util

import pytest

from dovetail.bytecode import ROWS, decode, entrance
from dovetail.bytecode.instructions import CANONICAL, INTRINSICS_1, Arg, known
from dovetail.bytecode.pythons import HERE

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


def test_equal_code_of_two_files_stays_that_of_its_file():
    """Code objects are equal whatever file they come from."""
    first, second = (compile("def f(x): return x\n", file, "exec").co_consts[0] for file in ("a.py", "b.py"))
    assert first == second
    assert [decode(code).code.co_filename for code in (first, second)] == ["a.py", "b.py"]


def test_where_python_goes_on():
    """At the instruction; behind what is left of one that stands for several, such as the NULL of a method's call."""
    decoded = decode(compile("a.m(b)", "", "eval"))
    load = next(k for k, i in enumerate(decoded.instructions) if i.name == "LOAD_ATTR")
    null = ["PUSH_NULL", "SWAP"] if HERE.null_below else ["PUSH_NULL"]
    assert entrance(decoded, load) == ([], decoded.instructions[load].offset)
    first, offset = entrance(decoded, load + 1)
    assert [name for name, _ in first] == null and offset == decoded.instructions[load].end
    assert entrance(decoded, load + 1 + len(null)) == ([], offset)


def test_a_branch_converts_where_python_goes_on_at_it():
    decoded = decode(compile("if a < b: c", "", "exec"))
    branch = next(k for k, i in enumerate(decoded.instructions) if i.name == "POP_JUMP_IF_FALSE")
    assert [name for name, _ in entrance(decoded, branch)[0]] == (["TO_BOOL"] if known("TO_BOOL") else [])


def test_rows_are_used():
    """Every canonical instruction is one of some Python, or stands for one."""
    named = {name for row in ROWS.values() for name in row.becomes or ()} | {*INTRINSICS_1.values()}
    assert not {name for name in CANONICAL - named if ROWS[name].last < 11}


def test_only_instructions_of_variables_read_or_write_one():
    for name, row in ROWS.items():
        assert (row.reads or row.writes) == (row.arg is Arg.LOCAL and row.becomes is None), name

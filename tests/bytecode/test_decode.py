"""Decoded instructions against `dis`, on every code object of a few standard modules."""

from __future__ import annotations

import dis
import importlib
import importlib.util
import sys
import types
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None and "dovetail" not in sys.modules:
    package = types.ModuleType("dovetail")  # the bytecode phase needs no torch; the package's __init__ does
    package.__path__ = [str(Path(__file__).resolve().parents[2] / "dovetail")]
    sys.modules["dovetail"] = package

from dovetail.bytecode import decode
from dovetail.bytecode.opcodes import DIALECT, MINOR, OPCODES, SYNONYMS, known

MODULES = """argparse ast collections contextlib dataclasses enum functools inspect json.decoder typing
asyncio.tasks""".split()


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def module_code(name):
    loader = importlib.util.find_spec(name).loader
    return loader.get_code(name)


@pytest.mark.parametrize("name", MODULES)
def test_matches_dis(name):
    for code in codes(module_code(name)):
        expected = [i for i in dis.get_instructions(code) if i.opname not in ("EXTENDED_ARG", "CACHE")]
        decoded = decode(code)
        assert names(expected) == [i.name for i in decoded.instructions]
        for k, (ours, theirs) in enumerate(zip(decoded.instructions, expected)):
            check_argument(decoded, k, ours, theirs)


def names(instructions):
    """Under which names `decode` shows these; a conversion before a truth test is none."""
    found = [SYNONYMS.get(i.opname, i.opname) for i in instructions]
    tests = {"POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT"}
    return ["NOP" if pair[0] == "TO_BOOL" and pair[1] in tests else pair[0] for pair in zip(found, [*found[1:], ""])]


def test_a_branch_tests_what_was_computed():
    """Whether Python converts to a bool before it branches or while it does is not to be seen."""
    instructions = decode(compile("if a < b and not c: d", "", "exec")).instructions
    assert "TO_BOOL" not in [i.name for i in instructions]
    assert [i.flag for i in instructions if i.name == "COMPARE_OP"] == [0]


def check_argument(decoded, k, ours, theirs):
    if theirs.opcode in dis.hasjrel:
        target = decoded.instructions[ours.target] if ours.target < len(decoded.instructions) else None
        if ours.name != "FOR_ITER":
            assert target is not None and covers(decoded, ours.target, theirs.argval)
    elif ours.name != "KW_NAMES" and (theirs.opcode in dis.hasname or theirs.opcode in dis.hasconst):
        assert ours.value == theirs.argval or ours.value is theirs.argval or ours.value != ours.value
    elif theirs.opcode in dis.haslocal and isinstance(theirs.argval, str):
        assert ours.value == theirs.argval
    elif theirs.opcode in dis.hasfree and isinstance(theirs.argval, str):
        assert ours.value == theirs.argval
    elif ours.name == "COMPARE_OP":
        assert theirs.argrepr.removeprefix("bool(").removesuffix(")") == ours.value


def covers(decoded, index, offset):
    """Is `offset` where the instruction (with its EXTENDED_ARG prefixes) starts?"""
    return decoded.instructions[index].offset == offset


@pytest.mark.parametrize("name", MODULES)
def test_loops_end_where_the_iterator_is_gone(name):
    for code in codes(module_code(name)):
        decoded = decode(code)
        for instruction in decoded.instructions:
            if instruction.name == "FOR_ITER":
                before = decoded.instructions[instruction.target - len(DIALECT.loop_end) : instruction.target]
                assert tuple(i.name for i in before) == DIALECT.loop_end


@pytest.mark.parametrize("name", MODULES)
def test_exception_tables_match_dis(name):
    for code in codes(module_code(name)):
        decoded = decode(code)
        starts = [i.offset for i in decoded.instructions] + [len(code.co_code)]
        ours = sorted((starts[r.start], starts[r.target], r.depth, r.lasti) for r in decoded.regions)
        theirs = sorted((e.start, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code))
        assert [o[1:] for o in ours] == [t[1:] for t in theirs]
        assert all(t[0] <= o[0] <= t[0] + 24 for o, t in zip(ours, theirs))


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


def test_every_opcode_of_this_python_is_known():
    import opcode

    names = {n for n, v in opcode.opmap.items() if v < 256 and not n.startswith(("INSTRUMENTED_", "INTERPRETER_"))}
    ignored = {"CACHE", "EXTENDED_ARG", "RESERVED", "ENTER_EXECUTOR", "LOAD_BUILD_CLASS"}
    unknown = {n for n in names - ignored if not known(n)}
    assert not unknown, sorted(unknown)


def test_rows_of_other_versions_are_not_of_this_one():
    import opcode

    wrong = [n for n, row in OPCODES.items() if known(n) and n not in opcode.opmap]
    assert not wrong, (MINOR, wrong)


def test_decoding_is_cached():
    assert decode(codes.__code__) is decode(codes.__code__)

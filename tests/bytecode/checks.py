"""What every Python must agree on with `dis`, for any code object.

Needs neither PyTorch nor pytest: as a script it looks at the standard library of the Python that runs it.
"""

from __future__ import annotations

import dis
import opcode
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    package = types.ModuleType("dovetail")  # the bytecode phase needs no torch; the package's __init__ does
    package.__path__ = [str(ROOT / "dovetail")]
    sys.modules["dovetail"] = package

from dovetail.bytecode import INLINED, decode  # noqa: E402
from dovetail.bytecode.opcodes import DIALECT, MINOR, OPCODES, SYNONYMS, known  # noqa: E402


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code object and all inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def instructions(code: types.CodeType) -> list[Any]:
    return [i for i in dis.get_instructions(code) if i.opname not in ("EXTENDED_ARG", "CACHE")]


def matches_dis(code: types.CodeType) -> None:
    expected, decoded = instructions(code), decode(code)
    assert names(expected) == [i.name for i in decoded.instructions]
    for k, (ours, theirs) in enumerate(zip(decoded.instructions, expected)):
        check_argument(decoded, k, ours, theirs)


def names(instructions: list[Any]) -> list[str]:
    """Under which names `decode` shows these; a conversion before a truth test is none."""
    found = [SYNONYMS.get(i.opname, i.opname) for i in instructions]
    tests = {"POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT"}
    return ["NOP" if pair[0] == "TO_BOOL" and pair[1] in tests else pair[0] for pair in zip(found, [*found[1:], ""])]


def check_argument(decoded: Any, k: int, ours: Any, theirs: Any) -> None:
    if theirs.opcode in dis.hasjrel:
        target = decoded.instructions[ours.target] if ours.target < len(decoded.instructions) else None
        if ours.name != "FOR_ITER":
            assert target is not None and covers(decoded, ours.target, theirs.argval)
    elif ours.name != "KW_NAMES" and (theirs.opcode in dis.hasname or theirs.opcode in dis.hasconst):
        assert ours.value == theirs.argval or ours.value is theirs.argval or ours.value != ours.value
    elif theirs.opcode in (*dis.haslocal, *dis.hasfree) and isinstance(theirs.argval, str):
        assert ours.value.removesuffix(INLINED) == theirs.argval
    elif ours.name == "COMPARE_OP":
        assert theirs.argrepr.removeprefix("bool(").removesuffix(")") == ours.value


def covers(decoded: Any, index: int, offset: int) -> bool:
    """Is `offset` where the instruction (with its EXTENDED_ARG prefixes) starts?"""
    return decoded.instructions[index].offset == offset


def loops_end_where_the_iterator_is_gone(code: types.CodeType) -> None:
    decoded = decode(code)
    for instruction in decoded.instructions:
        if instruction.name == "FOR_ITER":
            before = decoded.instructions[instruction.target - len(DIALECT.loop_end) : instruction.target]
            assert tuple(i.name for i in before) == DIALECT.loop_end


def exception_tables_match_dis(code: types.CodeType) -> None:
    decoded = decode(code)
    starts = [i.offset for i in decoded.instructions] + [len(code.co_code)]
    ours = sorted((starts[r.start], starts[r.target], r.depth, r.lasti) for r in decoded.regions)
    theirs = sorted((e.start, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code))
    assert [o[1:] for o in ours] == [t[1:] for t in theirs]
    assert all(t[0] <= o[0] <= t[0] + 24 for o, t in zip(ours, theirs))


def positions_match_dis(code: types.CodeType) -> None:
    decoded = decode(code)
    for k, theirs in enumerate(instructions(code)):
        p = theirs.positions
        assert tuple(decoded.position(k)) == (p.lineno, p.end_lineno, p.col_offset, p.end_col_offset)


def every_opcode_of_this_python_is_known() -> None:
    found = {n for n, v in opcode.opmap.items() if v < 256 and not n.startswith(("INSTRUMENTED_", "INTERPRETER_"))}
    ignored = {"CACHE", "EXTENDED_ARG", "RESERVED", "ENTER_EXECUTOR", "LOAD_BUILD_CLASS"}
    unknown = {n for n in found - ignored if not known(n)}
    assert not unknown, sorted(unknown)


def rows_of_other_versions_are_not_of_this_one() -> None:
    wrong = [n for n, row in OPCODES.items() if known(n) and n not in opcode.opmap]
    assert not wrong, (MINOR, wrong)


CHECKS: tuple[Callable[[types.CodeType], None], ...] = (
    matches_dis, loops_end_where_the_iterator_is_gone, exception_tables_match_dis, positions_match_dis,
)  # fmt: skip
OF_THE_TABLES = (every_opcode_of_this_python_is_known, rows_of_other_versions_are_not_of_this_one)


def standard_library() -> Iterator[types.CodeType]:
    """The code objects of the modules and of a package in which nothing is synchronous."""
    place = Path(sysconfig.get_path("stdlib"))
    for path in sorted([*place.glob("*.py"), *place.glob("asyncio/*.py")]):
        yield from codes(compile(path.read_bytes(), str(path), "exec", dont_inherit=True))


def main() -> None:
    """Print how many code objects agree; the first that does not is an error."""
    count = 0
    for check in OF_THE_TABLES:
        check()
    for count, code in enumerate(standard_library(), 1):
        for check_code in CHECKS:
            try:
                check_code(code)
            except Exception as error:
                raise AssertionError(f"{check_code.__name__}: {code}") from error
    print(f"{count} code objects of Python {sys.version.split()[0]} agree")


if __name__ == "__main__":
    main()

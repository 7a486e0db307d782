"""What every Python must agree on with `dis`, for any code object.

Needs neither PyTorch nor pytest: as a script it looks at the standard library of the Python that runs it.
"""

from __future__ import annotations

import dis
import functools
import opcode
import sys
import sysconfig
import types
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    package = types.ModuleType("dovetail")  # the bytecode phase needs no torch; the package's __init__ does
    package.__path__ = [str(ROOT / "dovetail")]
    sys.modules["dovetail"] = package
    sys.path.append(str(ROOT))

from dovetail.bytecode import INLINED, decode  # noqa: E402
from dovetail.bytecode.instructions import CANONICAL, ROWS, TESTS, Arg, known  # noqa: E402
from dovetail.bytecode.pythons import HERE, MINOR  # noqa: E402
from tests.bytecode import forms  # noqa: E402

#: What leaves no trace: an exhausted loop goes on behind its end, SEND lets go of what has ended.
GONE = {"END_FOR", "END_SEND", "NOT_TAKEN", "TO_BOOL"}


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code object and all inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


@functools.lru_cache(maxsize=1)
def instructions(code: types.CodeType) -> list[Any]:
    return [i for i in dis.get_instructions(code) if i.opname not in ("EXTENDED_ARG", "CACHE")]


@functools.lru_cache(maxsize=1)
def parts_of(code: types.CodeType) -> list[tuple[Any, list[int]]]:
    """Each of Python's instructions with the indexes of what stands for it."""
    decoded = decode(code).instructions
    found, k = [], 0
    for native in instructions(code):
        while k < len(decoded) and decoded[k].end <= native.offset:
            k += 1
        last = k
        while last < len(decoded) and decoded[last].offset <= native.offset:
            last += 1
        found.append((native, list(range(k, last))))
    return found


def every_instruction_stands_for_something(code: types.CodeType) -> None:
    after = ""
    for native, parts in parts_of(code):
        assert parts or native.opname in GONE or after == "END_FOR" and native.opname in ("POP_TOP", "POP_ITER"), native
        after = native.opname
    decoded = decode(code).instructions
    assert all(i.name in CANONICAL for i in decoded)
    assert all(a.end <= b.offset or (a.offset, a.end) == (b.offset, b.end) for a, b in zip(decoded, decoded[1:]))


def names_match_dis(code: types.CodeType) -> None:
    """An instruction stands for one of the same name, or for what the table says; a call, for what prepares it, too."""
    decoded = decode(code).instructions
    for native, parts in parts_of(code):
        row, here = ROWS[native.opname], [decoded[k].name for k in parts]
        if parts and row.rewrite is None and not set(here) & {"CALL", "CALL_KW", "BEFORE_WITH", "BEFORE_ASYNC_WITH"}:
            assert here == [*(row.becomes or (native.opname,))], (native, here)


def code_does_not_run_past_its_end(code: types.CodeType) -> None:
    """The last instruction goes on nowhere, or elsewhere."""
    assert ROWS[decode(code).instructions[-1].name].ends


def arguments_match_dis(code: types.CodeType) -> None:
    decoded = decode(code).instructions
    for native, parts in parts_of(code):
        values = [decoded[k].value for k in parts]
        op = native.opcode
        if not parts or native.opname == "END_ASYNC_FOR" or ROWS[native.opname].arg is Arg.COMMON:
            continue
        if op in dis.hasname or op in dis.hasconst and native.opname != "KW_NAMES":
            assert any(v == native.argval or v is native.argval or v != v for v in values), (native, values)
        elif isinstance(native.argval, tuple) and op in (*dis.haslocal, *dis.hasfree):
            assert tuple(v.removesuffix(INLINED) for v in values) == native.argval, (native, values)
        elif op in (*dis.haslocal, *dis.hasfree) and isinstance(native.argval, str):
            assert values[0].removesuffix(INLINED) == native.argval
        elif native.opname == "COMPARE_OP":
            assert native.argrepr.removeprefix("bool(").removesuffix(")") == values[0]
        elif native.opname == "LOAD_SMALL_INT":
            assert values == [native.arg]


def jumps_match_dis(code: types.CodeType) -> None:
    """Each lands on the first instruction at or behind its target; a loop's end is behind what pops the iterator."""
    decoded = decode(code).instructions
    natives = {i.offset: k for k, (i, _) in enumerate(parts_of(code))}
    listed = parts_of(code)
    for native, parts in listed:
        if native.opcode not in dis.hasjrel or native.opname == "END_ASYNC_FOR":
            continue
        (index,) = parts
        at = natives[min(o for o in natives if o >= native.argval)]
        if native.opname == "FOR_ITER" and MINOR >= 12:
            assert listed[at][0].opname == "END_FOR", native
        while at < len(listed) and not listed[at][1]:
            at += 1
        assert decoded[index].target == (listed[at][1][0] if at < len(listed) else len(decoded)), native


def nobody_jumps_to_a_loops_end(code: types.CodeType) -> None:
    """But FOR_ITER: so it may be left out."""
    listed = instructions(code)
    ends = {i.offset for i in listed if i.opname == "END_FOR"}
    ends |= {b.offset for a, b in zip(listed, listed[1:]) if MINOR >= 13 and a.opname == "END_FOR"}
    assert not [i for i in listed if i.opcode in dis.hasjrel and i.argval in ends and i.opname != "FOR_ITER"]


def exception_tables_match_dis(code: types.CodeType) -> None:
    """Every instruction is protected as Python's is; a truth test as the conversion before it."""
    decoded = decode(code)
    entries = [(e.start, e.end, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code)]
    offsets = [i.offset for i in decoded.instructions]
    converting = {n.offset for n in instructions(code) if n.opname == "TO_BOOL" or n.argrepr.startswith("bool(")}
    before = 0
    for k, instruction in enumerate(decoded.instructions):
        place = instruction.end - 2
        if instruction.name in TESTS:
            place = max([n for n in converting if before <= n < instruction.offset], default=place)
        before = instruction.offset
        found = [e for e in entries if e[0] <= place < e[1]]
        region = decoded.region(k)
        assert (region is None) == (not found), (instruction, found)
        if region is not None:
            assert (region.depth, region.lasti) == found[0][3:], instruction
            assert region.target == bisect_right(offsets, found[0][2] - 1), instruction


def positions_match_dis(code: types.CodeType) -> None:
    decoded = decode(code)
    at = {i.offset: i.positions for i in instructions(code)}
    starts = sorted(at)
    for k, instruction in enumerate(decoded.instructions):
        p = at[starts[bisect_right(starts, instruction.end - 2) - 1]]
        assert tuple(decoded.position(k)) == (p.lineno, p.end_lineno, p.col_offset, p.end_col_offset)


#: What Python can run behind the middle of what one of its instructions stands for, where a graph may end.
LEFT_OVER = {"PUSH_NULL", "SWAP", "TO_BOOL"}


def a_graph_ends_where_python_can_go_on(code: types.CodeType) -> None:
    decoded = decode(code).instructions
    for this, following in zip(decoded, decoded[1:]):
        waits = not ROWS[this.name].whole or this.name in ("LOAD_SUPER_ATTR", "SEND")
        assert not waits or this.offset != following.offset or following.name in LEFT_OVER, (this, following)


def every_opcode_of_this_python_is_known() -> None:
    found = {n for n, v in opcode.opmap.items() if v < 256 and not n.startswith(("INSTRUMENTED_", "INTERPRETER_"))}
    ignored = {"CACHE", "EXTENDED_ARG", "RESERVED", "ENTER_EXECUTOR"}
    unknown = {n for n in found - ignored if not known(n)}
    assert not unknown, sorted(unknown)


def rows_of_other_versions_are_not_of_this_one() -> None:
    wrong = [n for n, row in ROWS.items() if known(n) and n not in opcode.opmap]
    assert not wrong, (MINOR, wrong)


def code_has_the_form_of_every_python() -> None:
    for text, code in forms.compiled().items():
        assert forms.form(decode(code)) == forms.expected(text, MINOR), text


CHECKS: tuple[Callable[[types.CodeType], None], ...] = (
    every_instruction_stands_for_something, code_does_not_run_past_its_end, names_match_dis, arguments_match_dis,
    jumps_match_dis, nobody_jumps_to_a_loops_end, exception_tables_match_dis, positions_match_dis,
    a_graph_ends_where_python_can_go_on,
)  # fmt: skip
OF_THE_TABLES = (
    every_opcode_of_this_python_is_known, rows_of_other_versions_are_not_of_this_one, code_has_the_form_of_every_python,
)  # fmt: skip


def standard_library() -> Iterator[types.CodeType]:
    """The code objects of the modules and of a package in which nothing is synchronous."""
    place = Path(sysconfig.get_path("stdlib"))
    for path in sorted([*place.glob("*.py"), *place.glob("asyncio/*.py")]):
        yield from codes(compile(path.read_bytes(), str(path), "exec", dont_inherit=True))


def main() -> None:
    """Print how many code objects agree; the first that does not is an error."""
    assert HERE is not None
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

"""Every instruction: one row an opcode, with all that is known about it.

A row whose `becomes` is None is canonical: `decode` shows it, capture has a handler for it, and a graph can end at it
or the row says why not. The others are what some version of Python has in their place:

    LOAD_FAST_LOAD_FAST (a, b)   ->   LOAD_FAST a; LOAD_FAST b
    LOAD_METHOD m                ->   LOAD_ATTR m; PUSH_NULL; SWAP 2         where the NULL lies below the callable
    RETURN_CONST c               ->   LOAD_CONST c; RETURN_VALUE
    PRECALL n; CALL n            ->   CALL n                                 `SEQUENCES`: several that are one
    END_FOR; POP_TOP             ->                                          FOR_ITER goes on behind them

So what handles canonical instructions knows no versions. What an instruction stands for has the stack that Python has
when it begins and when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from dovetail.bytecode.pythons import MINOR, NEWEST, Python
from dovetail.ir.records import dataclass


class Arg(Enum):
    """What an instruction's argument stands for."""

    RAW = "the number itself"
    CONST = "an index of co_consts"
    COMMON = "an index of the common constants"
    NAME = "an index of co_names"
    NAME_BIT = "an index of co_names, shifted by one flag bit"
    ATTRIBUTE = "an index of co_names, shifted by one flag bit in the versions that have it"
    NAME_TWO_BITS = "an index of co_names, shifted by two flag bits"
    LOCAL = "an index of the fast locals: co_varnames, cells, free variables"
    TWO_LOCALS = "two four-bit indexes of the fast locals"
    JUMP = "a forward distance"
    JUMP_BACK = "a backward distance"
    COMPARE = "an index of the comparison operators, shifted by the version's bits"
    BINARY = "an index of the binary operators"
    INTRINSIC_1 = "an index of the intrinsic functions of one argument"
    INTRINSIC_2 = "an index of the intrinsic functions of two arguments"


COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")

BINARY_OPERATORS = (
    "add and floordiv lshift matmul mul mod or pow rshift sub truediv xor iadd iand ifloordiv ilshift imatmul imul "
    "imod ior ipow irshift isub itruediv ixor subscr"
).split()

COMMON_CONSTANTS = (AssertionError, NotImplementedError, tuple, all, any)

#: Intrinsic functions that are instructions here; those of type parameters are not captured.
INTRINSICS_1 = {
    1: "PRINT_EXPR", 2: "IMPORT_STAR", 3: "STOPITERATION_ERROR", 4: "ASYNC_GEN_WRAP", 5: "UNARY_POSITIVE",
    6: "LIST_TO_TUPLE",
}  # fmt: skip
INTRINSICS_2 = {1: "PREP_RERAISE_STAR"}


class Native(NamedTuple):
    """One instruction as Python has it, its argument resolved."""

    name: str
    arg: int
    value: Any
    flag: int


Part = tuple[str, int, Any]  # name, argument, value of a canonical instruction
Parts = tuple[Part, ...]
Rewrite = Callable[[Python, Native], Parts]


@dataclass(frozen=True, slots=True)
class Row:
    """`first`, `last`: the minor versions of Python 3 with an opcode of this name; none: only `decode` makes it.

    becomes: the canonical instructions that it stands for, by name; None: it is one.
    rewrite: the same, where arguments change with the names.
    reads, writes: the local variable that it names; a store to a cell reads the cell.
    ends: never goes on with the next instruction. tests: asks for the truth of what is on top of the stack.
    drops: has no use for what a call that it makes returns. gives: pushes one value, of which its columns are the text.
    again: advances an iterator, and can be made again when these have been pushed.
    whole: why no graph ends at it; where this is empty, `capture/breaks/steps.py` has a step.
    refused: why capture has no handler for it.
    """

    first: int = 11
    last: int = NEWEST
    arg: Arg = Arg.RAW
    becomes: tuple[str, ...] | None = None
    rewrite: Rewrite | None = None
    reads: bool = False
    writes: bool = False
    ends: bool = False
    tests: bool = False
    drops: bool = False
    gives: bool = False
    again: tuple[str, ...] | None = None
    whole: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Several:
    """Opcodes that are one instruction where they follow one another."""

    names: tuple[str, ...]
    first: int
    last: int
    rewrite: Callable[..., Parts]


# ---------------------------------------------------------------- rewrites


def _global(python: Python, unit: Native) -> Parts:
    load: Part = ("LOAD_GLOBAL", 0, unit.value)
    if not unit.flag:
        return (load,)
    return (_NULL, load) if python.null_below else (load, _NULL)


def _attribute(python: Python, unit: Native) -> Parts:
    load: Part = ("LOAD_ATTR", 0, unit.value)
    return (load, *_null_beside(python)) if unit.flag or unit.name == "LOAD_METHOD" else (load,)


def _super_attribute(python: Python, unit: Native) -> Parts:
    """The argument says whether `super()` was called with two arguments."""
    load: Part = ("LOAD_SUPER_ATTR", unit.flag >> 1, unit.value)
    return (load, *_null_beside(python)) if unit.flag & 1 else (load,)


def _null_beside(python: Python) -> Parts:
    """A call's NULL, where its callable has been pushed."""
    return (_NULL, _SWAP) if python.null_below else (_NULL,)


def _compare(python: Python, unit: Native) -> Parts:
    compare: Part = ("COMPARE_OP", 0, unit.value)
    return (compare, ("TO_BOOL", 0, 0)) if unit.flag else (compare,)


def _binary(python: Python, unit: Native) -> Parts:
    return (("BINARY_SUBSCR", 0, 0) if unit.value == "subscr" else ("BINARY_OP", unit.arg, unit.value),)


def _intrinsic(python: Python, unit: Native) -> Parts:
    return ((unit.value or unit.name, unit.arg, unit.arg),)


def _function(python: Python, unit: Native) -> Parts:
    """Before 3.13 the argument says which parts of the function lie below its code."""
    bits = [bit for bit in (8, 4, 2, 1) if unit.arg & bit]
    return (("MAKE_FUNCTION", 0, 0), *(("SET_FUNCTION_ATTRIBUTE", bit, bit) for bit in bits))


def _unpacked_call(python: Python, unit: Native) -> Parts:
    keywords = 1 if python.always_keywords else unit.arg
    return (("CALL_FUNCTION_EX", keywords, keywords),)


def _with_spec(python: Python, unit: Native) -> Parts:
    return (("FORMAT_VALUE", 4, 4),)


def _leave_with(python: Python, unit: Native) -> Parts:
    return (("WITH_EXCEPT_START", python.exit_below, python.exit_below),)


def _last(*units: Native) -> Parts:
    """The last of them, which the others only prepare."""
    return ((units[-1].name, units[-1].arg, units[-1].value),)


def _call_with_names(*units: Native) -> Parts:
    """The value is the names of the keywords."""
    return (("CALL_KW", units[-1].arg, units[0].value),)


def _enter_with(*units: Native) -> Parts:
    """`__exit__` is followed by its NULL."""
    name = {"__exit__": "BEFORE_WITH", "__aexit__": "BEFORE_ASYNC_WITH"}[SPECIAL_METHODS[units[1].arg]]
    return ((name, 0, 0), _NULL, _SWAP)


_NULL: Part = ("PUSH_NULL", 0, 0)
_SWAP: Part = ("SWAP", 2, 2)
SPECIAL_METHODS = ("__enter__", "__exit__", "__aenter__", "__aexit__")  # by LOAD_SPECIAL's argument


# ---------------------------------------------------------------- why no graph ends at it

MOVES = "it runs nothing that could not be captured"
VARIABLE = "it only finds or changes a variable"
MADE = "what it makes, it makes of values that are there"
JUMPS = "it only chooses where to go on"
SUSPENDS = "a frame begins, waits or ends at it"
HANDLES = "it is a part of how an exception is handled"
CLASS_BODY = "it works on the namespace of a class body"
IMPORTS = "imports are made while capturing"
UNWRITTEN = "no step is written for it"  # could be


def _rows(names: str, first: int = 11, last: int = NEWEST, **columns: Any) -> dict[str, Row]:
    row = Row(first, last, **columns)
    return dict.fromkeys(names.split(), row)


def _becomes(names: str, becomes: str, first: int = 11, last: int = NEWEST, **columns: Any) -> dict[str, Row]:
    return _rows(names, first, last, becomes=tuple(becomes.split()), **columns)


def _made() -> dict[str, int]:
    """Versions of what only `decode` makes."""
    return {"first": 0, "last": 0}


ROWS: dict[str, Row] = {
    # the stack
    **_rows("NOP RESUME POP_TOP PUSH_NULL COPY SWAP COPY_FREE_VARS", whole=MOVES),
    **_rows("LOAD_CONST", arg=Arg.CONST, whole=MOVES),
    **_rows("LOAD_COMMON_CONSTANT", 14, arg=Arg.COMMON, whole=MOVES),
    **_becomes("LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT", last=13, arg=Arg.COMMON),
    **_becomes("LOAD_SMALL_INT", "LOAD_CONST", 14),
    **_rows("LOAD_BUILD_CLASS", whole=MOVES),
    **_becomes("NOT_TAKEN", "", 14),
    **_becomes("POP_ITER", "POP_TOP", 14),
    **_becomes("EXIT_INIT_CHECK", "NOP", 13),
    # local variables and cells
    **_rows("LOAD_FAST", arg=Arg.LOCAL, reads=True, whole=VARIABLE),
    **_rows("STORE_FAST", arg=Arg.LOCAL, writes=True, whole=VARIABLE),
    **_rows("DELETE_FAST", arg=Arg.LOCAL, reads=True, writes=True, whole=VARIABLE),
    **_rows("LOAD_FAST_AND_CLEAR", 12, arg=Arg.LOCAL, reads=True, writes=True, whole=VARIABLE),
    **_rows("MAKE_CELL STORE_DEREF DELETE_DEREF", arg=Arg.LOCAL, reads=True, whole=VARIABLE),
    **_rows("LOAD_DEREF", arg=Arg.LOCAL, reads=True, whole=VARIABLE),
    **_becomes("LOAD_FAST_CHECK", "LOAD_FAST", 12, arg=Arg.LOCAL),
    **_becomes("LOAD_FAST_BORROW", "LOAD_FAST", 14, arg=Arg.LOCAL),
    **_becomes("LOAD_CLOSURE", "LOAD_FAST", last=12, arg=Arg.LOCAL),
    **_becomes("LOAD_FAST_LOAD_FAST", "LOAD_FAST LOAD_FAST", 13, arg=Arg.TWO_LOCALS),
    **_becomes("LOAD_FAST_BORROW_LOAD_FAST_BORROW", "LOAD_FAST LOAD_FAST", 14, arg=Arg.TWO_LOCALS),
    **_becomes("STORE_FAST_STORE_FAST", "STORE_FAST STORE_FAST", 13, arg=Arg.TWO_LOCALS),
    **_becomes("STORE_FAST_LOAD_FAST", "STORE_FAST LOAD_FAST", 13, arg=Arg.TWO_LOCALS),
    # globals, names and the bodies of classes
    **_rows("LOAD_GLOBAL", arg=Arg.NAME_BIT, rewrite=_global, whole=VARIABLE),
    **_rows("STORE_GLOBAL DELETE_GLOBAL", arg=Arg.NAME, whole=VARIABLE),
    **_rows("LOAD_NAME", arg=Arg.NAME, whole=CLASS_BODY),
    **_rows("STORE_NAME DELETE_NAME", arg=Arg.NAME, whole=CLASS_BODY),
    **_rows("SETUP_ANNOTATIONS", whole=CLASS_BODY),
    **_rows("LOAD_LOCALS", 12, whole=CLASS_BODY),
    **_rows("LOAD_FROM_DICT_OR_GLOBALS", 12, arg=Arg.NAME, whole=CLASS_BODY),
    **_rows("LOAD_FROM_DICT_OR_DEREF", 12, arg=Arg.LOCAL, reads=True, whole=CLASS_BODY),
    **_rows("LOAD_CLASSDEREF", last=11, arg=Arg.LOCAL, reads=True, whole=CLASS_BODY),
    # attributes, items, operators
    **_rows("LOAD_ATTR", arg=Arg.ATTRIBUTE, rewrite=_attribute, gives=True),
    **_becomes("LOAD_METHOD", "LOAD_ATTR", last=11, arg=Arg.NAME, rewrite=_attribute),
    **_rows("LOAD_SUPER_ATTR", 12, arg=Arg.NAME_TWO_BITS, rewrite=_super_attribute, gives=True, whole=UNWRITTEN),
    **_rows("STORE_ATTR DELETE_ATTR", arg=Arg.NAME, drops=True),
    **_rows("BINARY_SUBSCR", last=13, gives=True),
    **_rows("BINARY_SLICE", 12, gives=True),
    **_rows("STORE_SUBSCR DELETE_SUBSCR", drops=True),
    **_rows("STORE_SLICE", 12, drops=True),
    **_rows("BINARY_OP", arg=Arg.BINARY, rewrite=_binary, gives=True),
    **_rows("COMPARE_OP", arg=Arg.COMPARE, rewrite=_compare, gives=True),
    **_rows("IS_OP CONTAINS_OP UNARY_NEGATIVE UNARY_INVERT", gives=True),
    **_rows("UNARY_NOT", tests=True, gives=True),
    **_rows("UNARY_POSITIVE", last=11, gives=True),
    **_rows("TO_BOOL", 13),
    **_rows("GET_LEN"),
    # containers and texts
    **_rows("BUILD_TUPLE BUILD_LIST BUILD_SLICE LIST_APPEND", whole=MADE),
    **_rows("LIST_TO_TUPLE", last=11, whole=MADE),
    **_rows("BUILD_CONST_KEY_MAP", last=13, whole=MADE),
    **_rows("BUILD_SET BUILD_MAP SET_ADD LIST_EXTEND SET_UPDATE DICT_UPDATE UNPACK_SEQUENCE UNPACK_EX"),
    **_rows("MAP_ADD DICT_MERGE", whole=UNWRITTEN),
    **_rows("BUILD_STRING", gives=True),
    **_rows("FORMAT_VALUE", last=12, gives=True),
    **_becomes("FORMAT_SIMPLE", "FORMAT_VALUE", 13),
    **_becomes("FORMAT_WITH_SPEC", "FORMAT_VALUE", 13, rewrite=_with_spec),
    **_rows("CONVERT_VALUE", 13),
    **_rows("BUILD_TEMPLATE BUILD_INTERPOLATION", 14, refused="template strings"),
    # calls, functions, imports
    **_rows("CALL", gives=True),
    **_rows("CALL_KW", 13, gives=True),
    **_rows("CALL_FUNCTION_EX", rewrite=_unpacked_call, gives=True),
    **_becomes("PRECALL", "NOP", last=11),
    **_becomes("KW_NAMES", "NOP", last=12, arg=Arg.CONST),
    **_rows("MAKE_FUNCTION", rewrite=_function, whole=MADE),
    **_rows("SET_FUNCTION_ATTRIBUTE", 13, whole=MADE),
    **_rows("IMPORT_NAME IMPORT_FROM", arg=Arg.NAME, whole=IMPORTS),
    **_rows("IMPORT_STAR PRINT_EXPR", last=11, refused="only modules and the interactive prompt have it"),
    **_rows("CALL_INTRINSIC_1", 12, arg=Arg.INTRINSIC_1, rewrite=_intrinsic, refused="type parameters"),
    **_rows("CALL_INTRINSIC_2", 12, arg=Arg.INTRINSIC_2, rewrite=_intrinsic, refused="type parameters"),
    # jumps and loops
    **_rows("JUMP", **_made(), ends=True, whole=JUMPS),
    **_becomes("JUMP_FORWARD", "JUMP", arg=Arg.JUMP),
    **_becomes("JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT", "JUMP", arg=Arg.JUMP_BACK),
    **_rows("POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE", 12, arg=Arg.JUMP, tests=True),
    **_rows("POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE", 12, arg=Arg.JUMP, whole=JUMPS),
    **_becomes("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_IF_TRUE", last=11, arg=Arg.JUMP),
    **_becomes("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_IF_FALSE", last=11, arg=Arg.JUMP),
    **_becomes("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_IF_NONE", last=11, arg=Arg.JUMP),
    **_becomes("POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_IF_NOT_NONE", last=11, arg=Arg.JUMP),
    **_becomes("POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_IF_TRUE", last=11, arg=Arg.JUMP_BACK),
    **_becomes("POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_IF_FALSE", last=11, arg=Arg.JUMP_BACK),
    **_becomes("POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_IF_NONE", last=11, arg=Arg.JUMP_BACK),
    **_becomes("POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_IF_NOT_NONE", last=11, arg=Arg.JUMP_BACK),
    **_rows("JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP", last=11, arg=Arg.JUMP),
    **_rows("GET_ITER"),
    **_rows("FOR_ITER", arg=Arg.JUMP, again=()),
    **_becomes("END_FOR", "", 12),
    # generators and coroutines
    **_rows("GET_YIELD_FROM_ITER", whole=UNWRITTEN),
    **_rows("RETURN_GENERATOR YIELD_VALUE", whole=SUSPENDS),
    **_rows("SEND", arg=Arg.JUMP, again=("None",), whole=SUSPENDS),
    **_becomes("END_SEND", "", 12),  # here SEND itself lets go of what has ended
    **_rows("ASYNC_GEN_WRAP", last=11, whole=SUSPENDS),
    **_rows("GET_AWAITABLE GET_AITER GET_ANEXT END_ASYNC_FOR", whole=UNWRITTEN),
    **_rows("BEFORE_ASYNC_WITH", last=13, whole=UNWRITTEN),
    # leaving, exceptions, `with`
    **_rows("RETURN_VALUE", ends=True, whole=SUSPENDS),
    **_becomes("RETURN_CONST", "LOAD_CONST RETURN_VALUE", 12, 13, arg=Arg.CONST),
    **_rows("RAISE_VARARGS", ends=True),
    **_rows("RERAISE", ends=True, whole=HANDLES),
    **_rows("PUSH_EXC_INFO POP_EXCEPT CHECK_EXC_MATCH CHECK_EG_MATCH", whole=HANDLES),
    **_rows("CLEANUP_THROW", 12, whole=HANDLES),
    **_rows("PREP_RERAISE_STAR", last=11, whole=HANDLES),
    **_rows("STOPITERATION_ERROR", **_made(), whole=HANDLES),
    **_rows("BEFORE_WITH", last=13),
    **_rows("LOAD_SPECIAL", 14, refused="only `with` statements have it"),
    **_rows("WITH_EXCEPT_START", rewrite=_leave_with),
    # match
    **_rows("MATCH_MAPPING MATCH_SEQUENCE", whole=MOVES),
    **_rows("MATCH_KEYS MATCH_CLASS", whole=UNWRITTEN),
}

SEQUENCES = (
    Several(("PRECALL", "CALL"), 11, 11, _last),
    Several(("KW_NAMES", "PRECALL", "CALL"), 11, 11, _call_with_names),
    Several(("KW_NAMES", "CALL"), 12, 12, _call_with_names),
    Several(("LOAD_CONST", "CALL_KW"), 13, NEWEST, _call_with_names),
    Several(("END_FOR", "POP_TOP"), 13, 13, lambda *units: ()),
    Several(("END_FOR", "POP_ITER"), 14, NEWEST, lambda *units: ()),
    Several(("COPY", "LOAD_SPECIAL", "SWAP", "SWAP", "LOAD_SPECIAL", "CALL"), 14, NEWEST, _enter_with),
)

UNKNOWN = Row(refused="no version has it")  # of a name without a row

CANONICAL = frozenset(name for name, row in ROWS.items() if row.becomes is None)
TESTS = frozenset(name for name, row in ROWS.items() if row.tests)


def known(name: str, minor: int = MINOR) -> bool:
    """Does Python 3.`minor` have the opcode `name`?"""
    row = ROWS.get(name)
    return row is not None and row.first <= minor <= row.last


def beginning(minor: int) -> dict[str, tuple[Several, ...]]:
    """The sequences of Python 3.`minor` by their first opcode."""
    found: dict[str, tuple[Several, ...]] = {}
    for sequence in SEQUENCES:
        if sequence.first <= minor <= sequence.last:
            found[sequence.names[0]] = (*found.get(sequence.names[0], ()), sequence)
    return found

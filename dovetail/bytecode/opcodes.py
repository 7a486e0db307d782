"""Every opcode that capture understands, and the Python versions it exists in.

`OPCODES` maps a name to its row: the first and the last minor version (of Python 3) with the
opcode, and the kind of its argument, which says how `decode` resolves it. A `Dialect` holds what
differs between versions besides the set of opcodes; handlers see neither.

Sources: the "Python Bytecode Instructions" chapter of the `dis` documentation of each version.
"""

from __future__ import annotations

import sys
from enum import Enum

from dovetail.ir.records import dataclass

NEWEST = 13


class Arg(Enum):
    """What an instruction's argument stands for."""

    RAW = "the number itself"
    CONST = "an index of co_consts"
    NAME = "an index of co_names"
    NAME_BIT = "an index of co_names, shifted by one flag bit"
    NAME_TWO_BITS = "an index of co_names, shifted by two flag bits"
    LOCAL = "an index of the fast locals: co_varnames, cells, free variables"
    TWO_LOCALS = "two four-bit indexes of the fast locals"
    JUMP = "a forward distance"
    JUMP_BACK = "a backward distance"
    COMPARE = "an index of the comparison operators, shifted by the dialect's bits"
    BINARY = "an index of the binary operators"


@dataclass(frozen=True, slots=True)
class Opcode:
    first: int = 11
    last: int = NEWEST
    arg: Arg = Arg.RAW


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs from one version to the next in the opcodes that they share.

    `null_first`: a call's NULL lies below the callable, not above it. `compare_shift`: flag bits below a
    comparison's index; `compare_flag`: the one that asks for a bool. `loop_end`: opcodes at a FOR_ITER's
    target that an exhausted loop skips. `method_bit`: LOAD_ATTR's argument has the method flag.
    `send_keeps_receiver`: SEND leaves a finished receiver for END_SEND.
    """

    null_first: bool
    compare_shift: int
    compare_flag: int
    loop_end: tuple[str, ...]
    method_bit: bool
    send_keeps_receiver: bool


DIALECTS = {
    11: Dialect(True, 0, 0, (), method_bit=False, send_keeps_receiver=False),
    12: Dialect(True, 4, 0, ("END_FOR",), method_bit=True, send_keeps_receiver=True),
    13: Dialect(False, 5, 16, ("END_FOR", "POP_TOP"), method_bit=True, send_keeps_receiver=True),
}

COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")

BINARY_OPERATORS = (
    "add", "and", "floordiv", "lshift", "matmul", "mul", "mod", "or", "pow", "rshift", "sub", "truediv", "xor",
    "iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imul", "imod", "ior", "ipow", "irshift", "isub", "itruediv",
    "ixor",
)  # fmt: skip


def _rows(names: str, first: int = 11, last: int = NEWEST, arg: Arg = Arg.RAW) -> dict[str, Opcode]:
    return {name: Opcode(first, last, arg) for name in names.split()}


OPCODES: dict[str, Opcode] = {
    **_rows("NOP RESUME POP_TOP PUSH_NULL COPY SWAP RETURN_VALUE RETURN_GENERATOR YIELD_VALUE GET_YIELD_FROM_ITER"),
    **_rows("PRECALL ASYNC_GEN_WRAP", last=11),
    **_rows("UNARY_NEGATIVE UNARY_NOT UNARY_INVERT GET_ITER GET_LEN BINARY_SUBSCR STORE_SUBSCR DELETE_SUBSCR"),
    **_rows("UNARY_POSITIVE LIST_TO_TUPLE PRINT_EXPR IMPORT_STAR PREP_RERAISE_STAR", last=11),
    **_rows("BINARY_SLICE STORE_SLICE END_FOR END_SEND CALL_INTRINSIC_1 CALL_INTRINSIC_2 CLEANUP_THROW", first=12),
    **_rows("BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP BUILD_STRING BUILD_SLICE BUILD_CONST_KEY_MAP"),
    **_rows("LIST_APPEND SET_ADD MAP_ADD LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE UNPACK_SEQUENCE UNPACK_EX"),
    **_rows("MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS MATCH_CLASS IS_OP CONTAINS_OP CHECK_EXC_MATCH CHECK_EG_MATCH"),
    **_rows("PUSH_EXC_INFO POP_EXCEPT RERAISE RAISE_VARARGS BEFORE_WITH WITH_EXCEPT_START LOAD_ASSERTION_ERROR"),
    **_rows("CALL CALL_FUNCTION_EX LOAD_BUILD_CLASS SETUP_ANNOTATIONS COPY_FREE_VARS MAKE_FUNCTION GET_AWAITABLE"),
    **_rows("GET_AITER GET_ANEXT END_ASYNC_FOR BEFORE_ASYNC_WITH"),
    **_rows("FORMAT_VALUE", last=12),
    **_rows("FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE TO_BOOL CALL_KW", first=13),
    **_rows("SET_FUNCTION_ATTRIBUTE EXIT_INIT_CHECK", first=13),
    **_rows("LOAD_CONST", arg=Arg.CONST),
    **_rows("KW_NAMES", last=12, arg=Arg.CONST),
    **_rows("RETURN_CONST", first=12, arg=Arg.CONST),
    **_rows("LOAD_NAME STORE_NAME DELETE_NAME STORE_GLOBAL DELETE_GLOBAL STORE_ATTR DELETE_ATTR", arg=Arg.NAME),
    **_rows("IMPORT_NAME IMPORT_FROM", arg=Arg.NAME),
    **_rows("LOAD_METHOD", last=11, arg=Arg.NAME),
    **_rows("LOAD_GLOBAL", arg=Arg.NAME_BIT),
    **_rows("LOAD_ATTR", arg=Arg.NAME_BIT),
    **_rows("LOAD_SUPER_ATTR", first=12, arg=Arg.NAME_TWO_BITS),
    **_rows("LOAD_LOCALS", first=12),
    **_rows("LOAD_FROM_DICT_OR_GLOBALS", first=12, arg=Arg.NAME),
    **_rows("LOAD_FAST STORE_FAST DELETE_FAST LOAD_DEREF STORE_DEREF DELETE_DEREF MAKE_CELL", arg=Arg.LOCAL),
    **_rows("LOAD_CLOSURE", last=12, arg=Arg.LOCAL),
    **_rows("LOAD_CLASSDEREF", last=11, arg=Arg.LOCAL),
    **_rows("LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FROM_DICT_OR_DEREF", first=12, arg=Arg.LOCAL),
    **_rows("LOAD_FAST_LOAD_FAST STORE_FAST_STORE_FAST STORE_FAST_LOAD_FAST", first=13, arg=Arg.TWO_LOCALS),
    **_rows("JUMP_FORWARD FOR_ITER SEND", arg=Arg.JUMP),
    **_rows("JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT", arg=Arg.JUMP_BACK),
    **_rows("JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP", last=11, arg=Arg.JUMP),
    **_rows("POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE", last=11, arg=Arg.JUMP),
    **_rows("POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE", last=11, arg=Arg.JUMP),
    **_rows("POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_FALSE", last=11, arg=Arg.JUMP_BACK),
    **_rows("POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE", last=11, arg=Arg.JUMP_BACK),
    **_rows("POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE", first=12, arg=Arg.JUMP),
    **_rows("COMPARE_OP", arg=Arg.COMPARE),
    **_rows("BINARY_OP", arg=Arg.BINARY),
}

# The same action under another name: only the direction of a jump or a check that capture
# makes in any case tells them apart.
SYNONYMS = {
    "POP_JUMP_FORWARD_IF_TRUE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_FORWARD_IF_FALSE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_FORWARD_IF_NONE": "POP_JUMP_IF_NONE",
    "POP_JUMP_FORWARD_IF_NOT_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_BACKWARD_IF_TRUE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_BACKWARD_IF_FALSE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_NONE": "POP_JUMP_IF_NONE",
    "POP_JUMP_BACKWARD_IF_NOT_NONE": "POP_JUMP_IF_NOT_NONE",
    "JUMP_FORWARD": "JUMP",
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP",
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "LOAD_METHOD": "LOAD_ATTR",
}

# These ask for the truth of any value, so that a conversion to bool just before them (Python 3.13) says nothing new.
TRUTH_TESTS = frozenset(("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT"))

MINOR = sys.version_info.minor
DIALECT = DIALECTS.get(MINOR, DIALECTS[NEWEST])


def known(name: str, minor: int = MINOR) -> bool:
    """Does Python 3.`minor` have the opcode `name`?"""
    row = OPCODES.get(name)
    return row is not None and row.first <= minor <= row.last

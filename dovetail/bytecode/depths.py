"""How many values each canonical instruction takes from the stack and leaves on it.

    CALL 2    takes 4 (callable, NULL, two arguments), leaves 1

Instructions of class bodies, of coroutines and of matching are left out: `depths` gives None for them.
"""

from __future__ import annotations

from dovetail.bytecode.decode import Instruction

#: name: taken, left. What depends on the argument is in `_BY_ARGUMENT`.
_FIXED = {
    name: (int(taken), int(left))
    for taken, left, names in (
        ("0", "0", "NOP RESUME COPY_FREE_VARS MAKE_CELL DELETE_FAST DELETE_DEREF DELETE_GLOBAL JUMP RETURN_GENERATOR"),
        ("0", "1", "PUSH_NULL LOAD_CONST LOAD_COMMON_CONSTANT LOAD_BUILD_CLASS LOAD_FAST LOAD_FAST_AND_CLEAR"),
        ("0", "1", "LOAD_DEREF LOAD_GLOBAL"),
        ("1", "0", "POP_TOP STORE_FAST STORE_DEREF STORE_GLOBAL DELETE_ATTR RETURN_VALUE RERAISE POP_EXCEPT"),
        ("1", "0", "POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE"),
        ("1", "0", "JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP"),
        ("1", "0", "LIST_APPEND SET_ADD LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE"),
        ("1", "1", "LOAD_ATTR UNARY_NEGATIVE UNARY_INVERT UNARY_NOT UNARY_POSITIVE TO_BOOL GET_ITER LIST_TO_TUPLE"),
        ("1", "1", "MAKE_FUNCTION CONVERT_VALUE GET_YIELD_FROM_ITER YIELD_VALUE STOPITERATION_ERROR"),
        ("1", "2", "GET_LEN FOR_ITER IMPORT_FROM BEFORE_WITH PUSH_EXC_INFO MATCH_MAPPING MATCH_SEQUENCE"),
        ("2", "0", "STORE_ATTR DELETE_SUBSCR MAP_ADD"),
        ("2", "1", "BINARY_SUBSCR BINARY_OP COMPARE_OP IS_OP CONTAINS_OP SET_FUNCTION_ATTRIBUTE IMPORT_NAME"),
        ("2", "2", "CHECK_EXC_MATCH CHECK_EG_MATCH"),
        ("3", "0", "STORE_SUBSCR"),
        ("3", "1", "BINARY_SLICE LOAD_SUPER_ATTR"),
        ("4", "0", "STORE_SLICE"),
    )
    for name in names.split()
}  # fmt: skip

_BY_ARGUMENT = {
    "BUILD_TUPLE": lambda arg: (arg, 1),
    "BUILD_LIST": lambda arg: (arg, 1),
    "BUILD_SET": lambda arg: (arg, 1),
    "BUILD_STRING": lambda arg: (arg, 1),
    "BUILD_SLICE": lambda arg: (arg, 1),
    "BUILD_MAP": lambda arg: (2 * arg, 1),
    "BUILD_CONST_KEY_MAP": lambda arg: (arg + 1, 1),
    "UNPACK_SEQUENCE": lambda arg: (1, arg),
    "UNPACK_EX": lambda arg: (1, (arg & 255) + (arg >> 8) + 1),
    "FORMAT_VALUE": lambda arg: (2 if arg & 4 else 1, 1),
    "CALL": lambda arg: (arg + 2, 1),
    "CALL_FUNCTION_EX": lambda arg: (4 if arg & 1 else 3, 1),
    "RAISE_VARARGS": lambda arg: (arg, 0),
    "WITH_EXCEPT_START": lambda arg: (0, 1),
}
_KEYWORD_CALL = "CALL_KW"  # the names are the instruction's value, and not on the stack


def depths(instruction: Instruction) -> tuple[int, int] | None:
    """How many values it takes and leaves, where it goes on with the next one."""
    if instruction.name == _KEYWORD_CALL:
        return instruction.arg + 2, 1
    by_argument = _BY_ARGUMENT.get(instruction.name)
    return by_argument(instruction.arg) if by_argument is not None else _FIXED.get(instruction.name)

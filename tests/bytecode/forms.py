"""What code is made of, whichever Python has compiled it: a statement, and its canonical instructions.

NOP, RESUME and what puts a call's NULL in its place are left out, and so is where jumps go: compilers differ there.
"""

from __future__ import annotations

import ast
import opcode
import types
from typing import Any

FORMS = {
    "f(x)": "LOAD_NAME f; LOAD_NAME x; CALL 1",
    "a.m(b, k=c)": "LOAD_NAME a; LOAD_ATTR m; LOAD_NAME b; LOAD_NAME c; CALL_KW ('k',)",
    "f(*a, **b)": "LOAD_NAME f; LOAD_NAME a; BUILD_MAP 0; LOAD_NAME b; DICT_MERGE 1; CALL_FUNCTION_EX 1",
    "a[b] + 1": "LOAD_NAME a; LOAD_NAME b; BINARY_SUBSCR; LOAD_CONST 1; BINARY_OP add",
    "+a": "LOAD_NAME a; UNARY_POSITIVE",
    "(*a,)": "BUILD_LIST 0; LOAD_NAME a; LIST_EXTEND 1; LIST_TO_TUPLE",
    "f'{a}{b:>3}'": "LOAD_NAME a; FORMAT_VALUE 0; LOAD_NAME b; LOAD_CONST >3; FORMAT_VALUE 4; BUILD_STRING 2",
    "not a < b": "LOAD_NAME a; LOAD_NAME b; COMPARE_OP <; UNARY_NOT",
    "lambda: 0": "LOAD_CONST <code>; MAKE_FUNCTION",
    "lambda a=b: 0": "LOAD_NAME b; BUILD_TUPLE 1; LOAD_CONST <code>; MAKE_FUNCTION; SET_FUNCTION_ATTRIBUTE 1",
}

#: The same of the body of a function of `a`, `b` and `c`.
BODIES = {
    "a = b": "LOAD_FAST b; STORE_FAST a; LOAD_CONST None; RETURN_VALUE",
    "a, b = b, a; return a": "LOAD_FAST b; LOAD_FAST a; STORE_FAST b; STORE_FAST a; LOAD_FAST a; RETURN_VALUE",
    "return g(a)": "LOAD_GLOBAL g; LOAD_FAST a; CALL 1; RETURN_VALUE",
    "if a < b: return 1\nreturn c": "LOAD_FAST a; LOAD_FAST b; COMPARE_OP <; POP_JUMP_IF_FALSE; LOAD_CONST 1; "
    "RETURN_VALUE; LOAD_FAST c; RETURN_VALUE",
    "assert a, 'no'\nreturn b": "LOAD_FAST a; POP_JUMP_IF_TRUE; LOAD_COMMON_CONSTANT AssertionError; LOAD_CONST no; "
    "CALL 0; RAISE_VARARGS 1; LOAD_FAST b; RETURN_VALUE",
    "for b in a: g(b)\nreturn c": "LOAD_FAST a; GET_ITER; FOR_ITER; STORE_FAST b; LOAD_GLOBAL g; LOAD_FAST b; CALL 1; "
    "POP_TOP; JUMP; LOAD_FAST c; RETURN_VALUE",
    "with a: b.c = c": "LOAD_FAST a; BEFORE_WITH; POP_TOP; LOAD_FAST c; LOAD_FAST b; STORE_ATTR c; LOAD_CONST None; "
    "LOAD_CONST None; LOAD_CONST None; CALL {exit}; POP_TOP; LOAD_CONST None; RETURN_VALUE",
}

LEFT_OUT = ("NOP", "RESUME", "PUSH_NULL", "SWAP")
PLAIN = ("BINARY_SUBSCR", "UNARY_NOT", "UNARY_POSITIVE", "BEFORE_WITH", "POP_TOP", "RETURN_VALUE", "MAKE_FUNCTION",
         "LIST_TO_TUPLE", "GET_ITER")  # fmt: skip


def compiled() -> dict[str, Any]:
    """The code of each statement, by its text."""
    found: dict[str, Any] = {text: compile(text, "", "eval", dont_inherit=True) for text in FORMS}
    for text in BODIES:
        body = "\n".join(f"    {line}" for line in text.splitlines())
        module = compile(f"def f(a, b, c):\n{body}", "", "exec", dont_inherit=True)
        found[text] = next(c for c in module.co_consts if isinstance(c, types.CodeType))
    return found


def expected(text: str, minor: int) -> str:
    """A context manager is left with its `__exit__` and a NULL from 3.14 on, so that all three are arguments."""
    if text in FORMS:
        return f"{FORMS[text]}; RETURN_VALUE"
    return BODIES[text].format(exit=3 if minor >= 14 else 2)


def form(decoded: Any) -> str:
    """The instructions up to the end of what does not handle exceptions."""
    shown: list[str] = []
    for instruction in decoded.instructions:
        if instruction.name == "PUSH_EXC_INFO":
            break
        if instruction.name not in LEFT_OUT:
            shown.append(" ".join([instruction.name, *_operand(instruction)]))
    return "; ".join(shown)


def _operand(instruction: Any) -> list[str]:
    if instruction.name in PLAIN or instruction.target >= 0:
        return []
    value = instruction.value
    return ["<code>" if isinstance(value, types.CodeType) else getattr(value, "__name__", str(value))]


# ---------------------------------------------------------------- of a Python that is not there

FIELDS = ("co_names", "co_varnames", "co_cellvars", "co_freevars", "co_consts")


def recorded(code: Any) -> dict[str, str]:
    """A code object as texts."""
    tables = {"co_code": code.co_code.hex(), "co_exceptiontable": code.co_exceptiontable.hex()}
    consts = tuple("<code>" if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return tables | {n: repr(consts if n == "co_consts" else getattr(code, n)) for n in FIELDS}


def restored(texts: dict[str, str]) -> Any:
    """What `decode` asks of it: a code object of this Python would change the bytes of another."""
    tables = {n: bytes.fromhex(texts[n]) for n in ("co_code", "co_exceptiontable")}
    signature = dict.fromkeys(("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags"), 0)
    return types.SimpleNamespace(**tables, **signature, **{n: ast.literal_eval(texts[n]) for n in FIELDS})


def record() -> dict[str, Any]:
    """Everything above as the Python that runs compiles it, for `tests/bytecode/python3<minor>.json`."""
    codes = {text: recorded(code) for text, code in compiled().items()}
    return {"opcodes": " ".join(opcode.opname[:256]), "codes": codes}

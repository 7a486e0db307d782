"""Functions whose calls go through a wrapper: `f(x)` becomes `wrap(f)(x)`, everything else stays.

    LOAD_GLOBAL NULL + f        PUSH_NULL; LOAD_GLOBAL f; <wrap>
    LOAD_FAST x            ->   LOAD_FAST x
    CALL 1                      CALL 1

`<wrap>` replaces the top of the stack by `wrap(top)`. A callable is recognised where it is loaded for a call: as a
global, an attribute or a variable. What other expressions give is called as it is.

In a call with `*args`, the NULL is put beside the variable that a chain of attributes begins with:

    PUSH_NULL; LOAD_FAST x; LOAD_ATTR f    ->    PUSH_NULL; LOAD_FAST x; LOAD_ATTR f; <wrap>
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from bytecode import Bytecode, Instr

from dovetail.bytecode.instructions import ROWS, Arg, known
from dovetail.bytecode.pythons import HERE

WRAP: Any = object()  # the wrapper's place in the rows below

NULL_BELOW = HERE is not None and HERE.null_below
_LOADING: tuple[tuple[str, Any], ...] = (("PUSH_NULL", None), ("LOAD_CONST", WRAP))
_CALLING = (("PRECALL", 1), ("CALL", 1)) if known("PRECALL") else (("CALL", 1),)

#: Instructions that wrap the top of the stack.
WRAPPING: tuple[tuple[str, Any], ...] = (
    *(_LOADING if NULL_BELOW else reversed(_LOADING)), ("COPY", 3), *_CALLING, ("SWAP", 2), ("POP_TOP", None),
)  # fmt: skip

#: What loads a variable.
VARIABLES = frozenset(n for n, row in ROWS.items() if "LOAD_FAST" in (n, *(row.becomes or ())) and row.arg is Arg.LOCAL)
VARIABLES |= {"LOAD_DEREF", "LOAD_NAME"}


def with_wrapped_calls(fn: FunctionType, wrap: Callable[[Any], Any]) -> FunctionType:
    """A copy of the function that shares its globals, defaults and cells."""
    program = Bytecode.from_code(fn.__code__)
    items = list(program)
    out: list = []
    for k, item in enumerate(items):
        whole = isinstance(item, Instr) and not _goes_on(items, k)
        found = _for_call(item, _has_null(items, k), wrap) if whole else None
        out += [item] if found is None else found
    program[:] = out
    code = program.to_code().replace(co_qualname=fn.__code__.co_qualname, co_flags=fn.__code__.co_flags)
    made = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    made.__kwdefaults__, made.__qualname__, made.__module__ = fn.__kwdefaults__, fn.__qualname__, fn.__module__
    return made


def _is_plain(item: Any, name: str) -> bool:
    return isinstance(item, Instr) and item.name == name and not (isinstance(item.arg, tuple) and item.arg[0])


def _goes_on(items: list, k: int) -> bool:
    """Is what this instruction loads asked for an attribute, which may be what is called?"""
    return k + 1 < len(items) and _is_plain(items[k + 1], "LOAD_ATTR")


def _has_null(items: list, k: int) -> bool:
    """Has what loads a variable, or its attribute, a NULL beside it: is it loaded for a call?"""
    if not NULL_BELOW:
        return k + 1 < len(items) and _is_plain(items[k + 1], "PUSH_NULL")
    first = k
    while first and _is_plain(items[first], "LOAD_ATTR"):
        first -= 1
    base = items[first]
    if first < k and isinstance(base, Instr) and base.name == "LOAD_GLOBAL" and not _is_plain(base, "LOAD_GLOBAL"):
        return True
    return first > 0 and _is_plain(items[first - 1], "PUSH_NULL")


def _for_call(instruction: Any, has_null: bool, wrap: Callable[[Any], Any]) -> list | None:
    """What replaces an instruction that loads a callable for a call; None for any other."""
    load = _plain_load(instruction, has_null)
    if load is None:
        return None
    place = instruction.location
    wrapping = [_instruction(name, wrap if arg is WRAP else arg, place) for name, arg in WRAPPING]
    null = _instruction("PUSH_NULL", None, place)
    if load is instruction:
        return [load, *wrapping]  # its NULL is there already
    if not NULL_BELOW:
        return [load, *wrapping, null]
    return [load, *wrapping, null, _instruction("SWAP", 2, place)]


def _plain_load(instruction: Any, has_null: bool) -> Any:
    """The instruction that loads the callable alone; None if it is not loaded for a call."""
    name, arg, place = instruction.name, instruction.arg, instruction.location
    if name == "LOAD_METHOD":
        return _instruction("LOAD_ATTR", arg, place)
    if name in ("LOAD_GLOBAL", "LOAD_ATTR") and isinstance(arg, tuple) and arg[0]:
        return _instruction(name, (False, arg[1]), place)
    return instruction if has_null and (name in VARIABLES or name == "LOAD_ATTR") else None


def _instruction(name: str, arg: Any, place: Any) -> Any:
    return Instr(name, location=place) if arg is None else Instr(name, arg, location=place)

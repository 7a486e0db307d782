"""What code would do besides giving a result, read off its instructions: for code that runs on tensors without memory,
and again wherever a graph is taken apart, so that effects of it would be lost or happen twice.

    def __init__(self, a):
        self.a = a              what is being made: no effect
        Counted.made += 1       "sets Counted.made"

An abstract execution of every path: values that the code makes (`Fresh`), objects that it finds in globals, closures
and classes (`Outside`), and others (`OTHER`). Functions of the program's that it finds are read as well; PyTorch's and
the standard library's are known to be free of effects but for those named below.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch

from dovetail.bytecode import Instruction, decode
from dovetail.bytecode.depths import depths
from dovetail.capture.outside.code_calls import (
    attribute,
    called_method,
    called_object,
    cell,
    hand_on,
    implicit_super,
    item,
)
from dovetail.capture.outside.code_values import (
    FRESH,
    NULL,
    OTHER,
    REST,
    Attribute,
    Fresh,
    HasEffect,
    Inner,
    Method,
    Outside,
    WhatCodeDoes,
    joined,
    users_function,
)

DEEPEST = 12  # calls of functions by functions


def what_code_does(function: FunctionType, first: Any, strict: bool) -> WhatCodeDoes:
    """`first`: the function's first argument, `Fresh` or `Outside`."""
    found = WhatCodeDoes(strict)
    users = users_function(function)
    try:
        if users is not None:
            _entered(found, users, (first,), {}, 0)
    except HasEffect as error:
        found.effect = str(error)
    return found


def _entered(does: WhatCodeDoes, function: FunctionType, args: Any, kwargs: Mapping[str, Any], depth: int) -> Any:
    key = function, tuple(args), tuple(kwargs.items())
    if key not in does.results:
        does.functions[function] = None
        does.results[key] = OTHER  # where it calls itself
        does.results[key] = Reading(function.__code__, function, does, depth).run(args, kwargs)
    return does.results[key]


class Reading:
    """One function read with certain arguments."""

    def __init__(self, code: CodeType, function: FunctionType, does: WhatCodeDoes, depth: int) -> None:
        """`code`: the function's, or that of one inside it."""
        self.code, self.function, self.does, self.depth = decode(code), function, does, depth
        self.names: dict[str, Any] = {}
        self.outer: Mapping[str, Any] = {}
        self.result: Any = None
        self.stack: list[Any] = []

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What it returns."""
        self.names.update(self._parameters(args, kwargs))
        before = None
        while before != self.names:
            before = dict(self.names)
            self._walk()
        if self.code.suspended:
            return FRESH
        return OTHER if self.result is None else self.result

    def _parameters(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = self.code.parameters
        every = (*names.positional, *names.keyword_only)
        found: dict[str, Any] = dict.fromkeys(every, OTHER) if REST in args else self._defaults()
        found.update(zip(names.positional, (value for value in args if value is not REST)))
        found.update({name: value for name, value in kwargs.items() if name in every})
        return found | {name: FRESH for name in (names.star, names.double) if name is not None}

    def _defaults(self) -> dict[str, Any]:
        names, function = self.code.parameters, self.function
        found: dict[str, Any] = dict.fromkeys((*names.positional, *names.keyword_only), OTHER)
        if function.__code__ is self.code.code:
            defaults = function.__defaults__ or ()
            given = dict(zip(names.positional[len(names.positional) - len(defaults) :], defaults))
            given |= function.__kwdefaults__ or {}
            shared = (list, dict, set)  # by all calls; anything else may be another one, for what reads from outside
            found |= {name: Outside(v) for name, v in given.items() if self.depth or isinstance(v, shared)}
        return found

    def _walk(self) -> None:
        """Every instruction with what is on the stack when it is reached."""
        seen: dict[int, list[Any]] = {}
        waiting: list[tuple[int, list[Any]]] = [(0, [])]
        waiting += [(r.target, [OTHER] * (r.depth + r.lasti + 1)) for r in self.code.regions]
        while waiting:
            k, stack = waiting.pop()
            if k in seen:
                known = seen[k]
                stack = list(map(joined, known, stack)) if len(known) == len(stack) else []
                if stack == known:
                    continue
            seen[k] = stack
            if k < len(self.code.instructions):
                waiting += self._after(k, list(stack))

    def _after(self, k: int, stack: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        """Where it goes on behind instruction `k`, and with what."""
        i = self.code.instructions[k]
        self.stack = stack
        if i.target >= 0:
            yield i.target, stack[:-1] if i.name.startswith(("POP_JUMP", "FOR_ITER")) else list(stack)
        handler = _HANDLERS.get(i.name)
        if handler is not None:
            handler(self, i)
        elif not self._plain(i):
            return
        if i.name not in ENDING:
            yield k + 1, self.stack

    def _plain(self, i: Instruction) -> bool:
        found = depths(i)
        if found is None:
            self.unclear(f"does what {i.name} does")
            return False
        taken, left = found
        self.take(taken)
        self.stack += [FRESH if i.name.startswith("BUILD_") else OTHER] * left
        return True

    def take(self, count: int) -> list[Any]:
        """The topmost values, lowest first."""
        short = [OTHER] * (count - len(self.stack))
        taken = short + self.stack[len(self.stack) - min(count, len(self.stack)) :]
        del self.stack[len(self.stack) - min(count, len(self.stack)) :]
        return taken

    def unclear(self, words: str) -> None:
        if self.does.strict:
            raise HasEffect(words)

    def changed(self, value: Any, words: str) -> None:
        """The value is changed."""
        if not isinstance(value, Fresh) and (self.does.strict or isinstance(value, Outside)):
            raise HasEffect(words)

    def called(self, callee: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if isinstance(callee, Method):
            return self.entered(callee.function, [callee.first, *args], kwargs)
        if isinstance(callee, Outside):
            return called_object(self, callee.real, args, kwargs)
        if isinstance(callee, Attribute) and callee is not OTHER:
            hand_on(self, args, kwargs)
            return called_method(self, callee.owner, callee.name, args)
        if isinstance(callee, Inner):
            return callee.result
        self.unclear("calls something that cannot be told beforehand")
        return OTHER

    def entered(self, function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        users = users_function(function)
        if users is None:
            return OTHER
        if self.depth == DEEPEST:
            self.unclear("calls functions too deep to be followed")
            return OTHER
        return _entered(self.does, users, args, kwargs, self.depth + 1)


# ---------------------------------------------------------------- instructions

_HANDLERS: dict[str, Callable[[Reading, Instruction], None]] = {}
ENDING = frozenset(("RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP"))


def _on(*names: str) -> Callable:
    def register(handler: Callable[[Reading, Instruction], None]) -> Callable:
        _HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


@_on("BINARY_SUBSCR")
def _subscript(r: Reading, i: Instruction) -> None:
    item(r)


@_on("LOAD_CONST", "LOAD_COMMON_CONSTANT")
def _constant(r: Reading, i: Instruction) -> None:
    r.stack.append(Outside(i.value))


@_on("PUSH_NULL")
def _null(r: Reading, i: Instruction) -> None:
    r.stack.append(NULL)


@_on("BUILD_TUPLE")
def _tuple(r: Reading, i: Instruction) -> None:
    r.stack.append(Fresh(None, tuple(r.take(i.arg))))


@_on("COPY")
def _copy(r: Reading, i: Instruction) -> None:
    r.stack.append(r.stack[-i.arg] if i.arg <= len(r.stack) else OTHER)


@_on("SWAP")
def _swap(r: Reading, i: Instruction) -> None:
    taken = r.take(i.arg)
    taken[0], taken[-1] = taken[-1], taken[0]
    r.stack += taken


@_on("LOAD_FAST", "LOAD_FAST_AND_CLEAR")
def _load(r: Reading, i: Instruction) -> None:
    r.stack.append(r.names.get(i.value, FRESH))


@_on("STORE_FAST")
def _store(r: Reading, i: Instruction) -> None:
    (value,) = r.take(1)
    r.names[i.value] = joined(r.names[i.value], value) if i.value in r.names else value


@_on("LOAD_DEREF")
def _load_cell(r: Reading, i: Instruction) -> None:
    r.stack.append(cell(r, i.value))


@_on("STORE_DEREF", "DELETE_DEREF")
def _store_cell(r: Reading, i: Instruction) -> None:
    if i.value not in r.code.code.co_cellvars and i.value not in r.outer:
        raise HasEffect(f"sets {i.value} of a function around it")
    if i.name == "STORE_DEREF":
        _store(r, i)


@_on("STORE_GLOBAL", "DELETE_GLOBAL")
def _store_global(r: Reading, i: Instruction) -> None:
    raise HasEffect(f"sets the global {i.value}")


@_on("LOAD_GLOBAL")
def _global(r: Reading, i: Instruction) -> None:
    table = r.function.__globals__
    found = table.get(i.value, getattr(builtins, i.value, r))
    r.does.note(table, i.value, found)
    r.stack.append(OTHER if found is r else Outside(found))


@_on("LOAD_ATTR")
def _load_attribute(r: Reading, i: Instruction) -> None:
    r.stack.append(attribute(r, r.take(1)[0], i.value))


@_on("LOAD_SUPER_ATTR")
def _load_super_attribute(r: Reading, i: Instruction) -> None:
    r.take(3)
    found = implicit_super(r)
    r.stack.append(attribute(r, found, i.value))


@_on("STORE_ATTR", "DELETE_ATTR")
def _store_attribute(r: Reading, i: Instruction) -> None:
    owner = r.take(1)[0]
    value = r.take(1)[0] if i.name == "STORE_ATTR" else OTHER
    if isinstance(owner, Fresh) and owner.cls is not None:
        setter = inspect.getattr_static(owner.cls, "__setattr__")
        if isinstance(setter, FunctionType):
            r.entered(setter, [owner, Outside(i.value), value], {})
        key = owner.cls, i.value
        r.does.attributes[key] = joined(r.does.attributes[key], value) if key in r.does.attributes else value
    name = getattr(getattr(owner, "real", None), "__name__", "")
    r.changed(owner, f"sets {name}.{i.value}" if name else f"sets .{i.value} of something that it does not make")


@_on("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE")
def _store_item(r: Reading, i: Instruction) -> None:
    owner = r.take({"STORE_SUBSCR": 3, "DELETE_SUBSCR": 2, "STORE_SLICE": 4}[i.name])[0 if i.name[0] == "D" else 1]
    if not isinstance(getattr(owner, "real", None), torch.Tensor):
        r.changed(owner, "sets an item of something that it does not make")


@_on("BINARY_OP")
def _binary(r: Reading, i: Instruction) -> None:
    left, _ = r.take(2)
    in_place = i.value[0] == "i"
    if in_place and isinstance(left, Outside) and isinstance(left.real, (list, dict, set, bytearray)):
        raise HasEffect("changes a container that it does not make")
    r.stack.append(OTHER if in_place and not isinstance(left, Fresh) else FRESH)


@_on("BEFORE_WITH")
def _enter(r: Reading, i: Instruction) -> None:
    (manager,) = r.take(1)
    r.changed(manager if isinstance(manager, Outside) else FRESH, "enters a context manager that it does not make")
    for name in ("__enter__", "__exit__"):
        entering = attribute(r, manager, name)
        if isinstance(entering, Method):
            r.called(entering, (REST,), {})
    r.stack += [Inner(OTHER), OTHER]


@_on("CALL", "CALL_KW")
def _call(r: Reading, i: Instruction) -> None:
    args = r.take(i.arg)
    names = i.value if i.name == "CALL_KW" else ()
    kwargs = dict(zip(names, args[len(args) - len(names) :]))
    below = [value for value in r.take(2) if value is not NULL] or [OTHER]
    r.stack.append(r.called(below[0], [*below[1:], *args[: len(args) - len(names)]], kwargs))


@_on("CALL_FUNCTION_EX")
def _call_unpacked(r: Reading, i: Instruction) -> None:
    packed = r.take(1 + (i.arg & 1))[0]
    items = packed.items if isinstance(packed, Fresh) else ()
    below = [value for value in r.take(2) if value is not NULL] or [OTHER]
    r.stack.append(r.called(below[0], [*below[1:], *items, REST], {}))


@_on("MAKE_FUNCTION")
def _make_function(r: Reading, i: Instruction) -> None:
    """It is read at once, as if it were called."""
    (code,) = r.take(1)
    if isinstance(code, Outside) and isinstance(code.real, CodeType):
        inner = Reading(code.real, r.function, r.does, r.depth + 1)
        inner.outer = {**r.outer, **{name: r.names.get(name, FRESH) for name in r.code.code.co_cellvars}}
        r.stack.append(Inner(inner.run((REST,), {})))
    else:
        r.stack.append(OTHER)


@_on("SET_FUNCTION_ATTRIBUTE")
def _set_function_attribute(r: Reading, i: Instruction) -> None:
    r.stack.append(r.take(2)[1])


@_on("IMPORT_NAME")
def _import(r: Reading, i: Instruction) -> None:
    r.take(2)
    r.stack.append(OTHER)


@_on("RETURN_VALUE")
def _return(r: Reading, i: Instruction) -> None:
    (value,) = r.take(1)
    r.result = value if r.result is None else joined(r.result, value)

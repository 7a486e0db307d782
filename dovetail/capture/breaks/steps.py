"""One instruction as Python text: what the residual does where the graph breaks.

A step takes its operands off a copy of the frame's stack. `successors` say how it goes on: a condition (None:
otherwise), the instruction to go on with, and what it finds pushed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch

from dovetail.capture.breaks.call_sites import LOOKING, called_at, sites
from dovetail.capture.cpython.asked import looked_up
from dovetail.capture.tables.opcode_handlers import called
from dovetail.capture.tables.operator_names import BINARY, COMPARE, UNARY
from dovetail.capture.values.base import MISSING, NULL, Value
from dovetail.capture.values.callables import FunctionValue, KnownValue, MethodValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.ir import marks
from dovetail.ir.captured import ENTERED, PLAIN
from dovetail.ir.guard import ABSENT
from dovetail.ir.records import dataclass
from dovetail.ops.calls.autograd_calls import register_hook

if TYPE_CHECKING:
    from dovetail.bytecode.decode import Instruction
    from dovetail.capture.interpreter.frame import Frame
    from dovetail.capture.residual.rebuild import Rebuilder

RESULT = "_r"


@dataclass
class Successor:
    condition: str | None
    index: int
    pushed: list[str] = field(default_factory=list)


@dataclass
class Step:
    lines: list[str]
    successors: list[Successor]


Maker = Callable[[Any, Any, list, Any], Step]
STEPS: dict[str, Maker] = {}


def step(*names: str) -> Callable[[Maker], Maker]:
    def register(maker: Maker) -> Maker:
        STEPS.update(dict.fromkeys(names, maker))
        return maker

    return register


def plain(frame: Frame, text: str, pushed: list[str] | None = None) -> Step:
    """Evaluate and push the result."""
    return Step([f"{RESULT} = {text}"], [Successor(None, frame.at + 1, [RESULT] if pushed is None else pushed)])


def take(stack: list, count: int) -> list:
    values = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    return values


def texts(rebuilder: Rebuilder, values: list[Value]) -> list[str]:
    return [rebuilder.expr(v) for v in values]


# ---------------------------------------------------------------- calls


@step("CALL", "CALL_KW")
def _call(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    names = i.value if i.name == "CALL_KW" else ()
    args = take(stack, i.arg)
    function, args[:0] = called(stack)
    _needs_no_frame(frame, function)
    parts = texts(rebuilder, args)
    split = len(parts) - len(names)
    if "key" in names and isinstance(function, KnownValue) and any(function.real is known for known in SORTING):
        place = split + names.index("key")
        parts[place] = _called(args[place], rebuilder)
    keywords = [f"{n}={t}" for n, t in zip(names, parts[split:])]
    return plain(frame, _call_text(frame, function, [*parts[:split], *keywords], rebuilder))


@step("CALL_FUNCTION_EX")
def _call_ex(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    keywords = stack.pop() if i.arg & 1 else NULL
    args = stack.pop()
    function, _ = called(stack)
    _needs_no_frame(frame, function)
    inside = [f"*{rebuilder.expr(args)}"] + ([f"**{rebuilder.expr(keywords)}"] if keywords is not NULL else [])
    return plain(frame, _call_text(frame, function, inside, rebuilder))


def _call_text(frame: Frame, function: Any, inside: list[str], rebuilder: Rebuilder) -> str:
    """The call; from a frame under the user's names where it looks for that."""
    target = function.function if isinstance(function, MethodValue) else function
    text = _called(function, rebuilder)
    if isinstance(target, (KnownValue, FunctionValue)) and any(target.real is known for known in LOOKING):
        at = rebuilder.known(sites(frame.s.stack())), rebuilder.known(frame.scope.table), text
        return f"{rebuilder.known(called_at)}({', '.join([*at, *inside])})"
    return f"{text}({', '.join(inside)})"


def _called(function: Any, rebuilder: Rebuilder) -> str:
    """The callable, or its compiled counterpart.

    What a function marked with `disable(recursive=False)` calls is compiled, by whoever runs this.
    """
    target = function.function if isinstance(function, MethodValue) else function
    if isinstance(function, MethodValue) and getattr(target, "real", None) is torch.Tensor.register_hook:
        parts = map(rebuilder.known, (functools.partial, register_hook))
        return "{}({}, {})".format(*parts, rebuilder.expr(function.receiver))
    if not isinstance(target, (FunctionValue, ObjectValue)):
        return rebuilder.expr(function)
    real = target.real if isinstance(target, FunctionValue) else MISSING
    found = None if real is MISSING else marks.of_function(real)
    if found is None:
        name = ENTERED
    elif marks.runs_plain(real):
        name = PLAIN
    else:
        return rebuilder.expr(function)
    rebuilder.names.setdefault(name, lambda fn: fn)
    return f"{name}({rebuilder.expr(function)})"


SORTING = (max, min, sorted)  # they call their `key`, and show it to nobody

FRAME_READERS = (locals, globals, vars, dir, super, eval, exec, __import__)


def _needs_no_frame(frame: Frame, function: Any) -> None:
    if isinstance(function, KnownValue) and any(function.real is reader for reader in FRAME_READERS):
        frame.s.unsupported("frame-reader", f"{function.describe()} looks at the frame that calls it")


# ---------------------------------------------------------------- attributes, items, operators


@step("LOAD_ATTR")
def _load_attr(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    return plain(frame, f"{rebuilder.known(getattr)}({rebuilder.expr(stack.pop())}, {i.value!r})")


def _apply(function: Any, count: int) -> Maker:
    """`function(*operands)`, operands in stack order, the result pushed."""

    def make(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
        operands = texts(rebuilder, take(stack, count))
        return plain(frame, f"{rebuilder.known(function)}({', '.join(operands)})")

    return make


def _effect(function: Any, order: tuple[int, ...]) -> Maker:
    """Call for the effect; `order` says which operand, in stack order, is which argument."""

    def make(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
        operands = texts(rebuilder, take(stack, len(order)))
        return plain(frame, f"{rebuilder.known(function)}({', '.join(operands[k] for k in order)})", [])

    return make


def _text(count: int | None, write: Callable[..., str]) -> Maker:
    """`write` makes the text of the instruction and of its operands, in stack order; None: as many as it says."""

    def make(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
        return plain(frame, write(i, *texts(rebuilder, take(stack, i.arg if count is None else count))))

    return make


STEPS["GET_ITER"] = _apply(iter, 1)
STEPS["TO_BOOL"] = _apply(bool, 1)
STEPS["UNARY_NOT"] = _apply(operator.not_, 1)
STEPS["UNARY_NEGATIVE"] = _apply(UNARY["neg"][0], 1)
STEPS["UNARY_POSITIVE"] = _apply(UNARY["pos"][0], 1)
STEPS["UNARY_INVERT"] = _apply(UNARY["invert"][0], 1)
STEPS["BINARY_SUBSCR"] = _apply(operator.getitem, 2)
STEPS["STORE_SUBSCR"] = _effect(operator.setitem, (1, 2, 0))
STEPS["DELETE_SUBSCR"] = _effect(operator.delitem, (0, 1))
STEPS["GET_LEN"] = lambda frame, i, stack, r: plain(frame, f"{r.known(len)}({r.expr(stack[-1])})")
STEPS["BINARY_OP"] = lambda frame, i, stack, r: _apply(BINARY[i.value], 2)(frame, i, stack, r)
STEPS["COMPARE_OP"] = lambda frame, i, stack, r: _apply(COMPARE[i.value][0], 2)(frame, i, stack, r)
STEPS["CONVERT_VALUE"] = lambda frame, i, stack, r: _apply(CONVERSIONS[i.arg], 1)(frame, i, stack, r)
STEPS["CONTAINS_OP"] = _text(2, lambda i, item, container: f"{item} {'not in' if i.arg else 'in'} {container}")
STEPS["IS_OP"] = _text(2, lambda i, left, right: f"{left} {'is not' if i.arg else 'is'} {right}")
STEPS["BINARY_SLICE"] = _text(3, lambda i, container, start, stop: f"{container}[{start}:{stop}]")
STEPS["BUILD_STRING"] = _text(None, lambda i, *parts: f"''.join(({', '.join(parts)},))")
STEPS["BUILD_SET"] = _text(None, lambda i, *items: f"{{{', '.join(items) or '*()'}}}")



@step("STORE_ATTR", "DELETE_ATTR")
def _store_attr(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    target = rebuilder.expr(stack.pop())
    if i.name == "DELETE_ATTR":
        return plain(frame, f"{rebuilder.known(delattr)}({target}, {i.value!r})", [])
    return plain(frame, f"{rebuilder.known(setattr)}({target}, {i.value!r}, {rebuilder.expr(stack.pop())})", [])


@step("UNPACK_SEQUENCE", "UNPACK_EX")
def _unpack(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    starred, more = (i.arg & 255, i.arg >> 8) if i.name == "UNPACK_EX" else (i.arg, -1)
    names = [f"_r{k}" for k in range(starred + 1 + more)]
    targets = [f"*{name}" if k == starred else name for k, name in enumerate(names)]
    line = f"[{', '.join(targets)}] = {rebuilder.expr(stack.pop())}"
    return Step([line], [Successor(None, frame.at + 1, names[::-1])])


CONVERSIONS: dict[int, Any] = {1: str, 2: repr, 3: ascii}


@step("FORMAT_VALUE")
def _format(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    spec = rebuilder.expr(stack.pop()) if i.arg & 4 else "''"
    text, conversion = rebuilder.expr(stack.pop()), CONVERSIONS.get(i.arg & 3)
    if conversion is not None:
        text = f"{rebuilder.known(conversion)}({text})"
    return plain(frame, f"{rebuilder.known(format)}({text}, {spec})")


# ---------------------------------------------------------------- with, raise, containers


def special(obj: Any, name: str) -> Any:
    """`type(obj).name` bound to the object, as the interpreter looks it up."""
    found = looked_up(obj, name, ABSENT)
    if found is ABSENT:
        raise TypeError(f"{type(obj).__name__!r} object does not support the context manager protocol")
    return found


@step("BEFORE_WITH")
def _before_with(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    look_up = rebuilder.known(special)
    lines = [
        f"_m = {rebuilder.expr(stack.pop())}", f"_enter = {look_up}(_m, '__enter__')",
        f"_leave = {look_up}(_m, '__exit__')", f"{RESULT} = _enter()",
    ]  # fmt: skip
    return Step(lines, [Successor(None, frame.at + 1, ["_leave", RESULT])])


@step("WITH_EXCEPT_START")
def _with_except_start(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    error, leave = rebuilder.expr(stack[-1]), rebuilder.expr(stack[-i.arg])
    return plain(frame, f"{leave}(type({error}), {error}, {error}.__traceback__)")


@step("RAISE_VARARGS")
def _raise(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    operands = texts(rebuilder, take(stack, i.arg))
    return Step([" from ".join(["raise " + "".join(operands[:1]), *operands[1:]])], [])


def _in_place(text: str) -> Maker:
    """`text` with the container below and the value on top."""

    def make(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
        value = rebuilder.expr(stack.pop())
        return plain(frame, text.format(rebuilder.expr(stack[-i.arg]), value), [])

    return make


STEPS["LIST_EXTEND"] = _in_place("{}.extend({})")
STEPS["SET_UPDATE"] = STEPS["DICT_UPDATE"] = _in_place("{}.update({})")
STEPS["SET_ADD"] = _in_place("{}.add({})")


@step("STORE_SLICE")
def _store_slice(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    value, container, start, stop = texts(rebuilder, take(stack, 4))
    return plain(frame, f"{rebuilder.known(operator.setitem)}({container}, slice({start}, {stop}), {value})", [])


@step("BUILD_MAP")
def _build_map(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    flat = texts(rebuilder, take(stack, 2 * i.arg))
    return plain(frame, f"{{{', '.join(map('{}: {}'.format, flat[::2], flat[1::2]))}}}")


# ---------------------------------------------------------------- branches


@step("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")
def _branch(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    text = f"{rebuilder.known(bool)}({rebuilder.expr(stack.pop())})"
    jump, fall = i.target, frame.at + 1
    yes, no = (jump, fall) if i.name.endswith("TRUE") else (fall, jump)
    return Step([f"{RESULT} = {text}"], [Successor(RESULT, yes), Successor(None, no)])


@step("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def _branch_or_pop(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    value = rebuilder.expr(stack.pop())
    condition = RESULT if "TRUE" in i.name else f"not {RESULT}"
    lines = [f"{RESULT} = {rebuilder.known(bool)}({value})"]
    return Step(lines, [Successor(condition, i.target, [value]), Successor(None, frame.at + 1)])


@step("FOR_ITER")
def _for_iter(frame: Frame, i: Instruction, stack: list, rebuilder: Rebuilder) -> Step:
    rebuilder.names["_END"] = ABSENT
    iterator = rebuilder.expr(stack.pop())
    line = f"{RESULT} = {rebuilder.known(next)}({iterator}, _END)"
    return Step([line], [Successor(f"{RESULT} is _END", i.target), Successor(None, frame.at + 1, [iterator, RESULT])])

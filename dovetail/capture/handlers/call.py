"""Calls, functions made inside, imports."""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from dovetail.bytecode import INLINED, decode
from dovetail.capture.handlers.build import callee_text, mapping_pairs, walks
from dovetail.capture.handlers.stack import implicit_super, read_local
from dovetail.capture.interpreter.frame import Frame
from dovetail.capture.interpreter.tail_calls import of_call, runs_code, standing_in, used_up
from dovetail.capture.polyfills.iteration import listed
from dovetail.capture.process import unguarded_facts
from dovetail.capture.state.module_globals import ModuleGlobals
from dovetail.capture.tables.opcode_handlers import called, op
from dovetail.capture.values.base import NULL, Const, Session
from dovetail.capture.values.callables import CellValue, FunctionValue, KnownValue, MethodValue
from dovetail.capture.values.containers import DictValue, ListValue
from dovetail.errors import NOWHERE, Unsupported
from dovetail.ir import asked

if TYPE_CHECKING:
    from dovetail.bytecode.decode import Instruction


@op("CALL")
def call(f: Frame, i: Instruction) -> None:
    args = f.popn(i.arg)
    function, args[:0] = called(f.stack_)
    f.stack_.append(invoke(f, function, args, {}))


@op("CALL_KW")
def call_kw(f: Frame, i: Instruction) -> None:
    """The value is the names of the keywords."""
    kwargs = dict(zip(i.value, f.popn(len(i.value))))
    args = f.popn(i.arg - len(i.value))
    function, args[:0] = called(f.stack_)
    f.stack_.append(invoke(f, function, args, kwargs))


def invoke(f: Frame, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call, with the built-ins that look at the calling frame."""
    if isinstance(function, KnownValue):
        if function.real is super and not args:
            return implicit_super(f)
        if function.real is eval and not kwargs:
            return _eval(f, args, kwargs)
        reader = None if args or kwargs else next((r for known, r in FRAME_READERS if function.real is known), None)
        if reader is not None:
            _refuse_inside_ours(f, function)
            return reader(f)
    if isinstance(function, (KnownValue, MethodValue)):
        function, args = standing_in(f.s, function, args, kwargs)
    f.awaits = of_call(function, args)
    return function.call(f.s, args, kwargs)


def _refuse_inside_ours(f: Frame, function: KnownValue) -> None:
    """Python that is traced in the place of native code is no frame that the program has."""
    if (f.scope.module or "").startswith("dovetail."):
        reason = f"native code calls {function.describe()}, which looks at the frame around that"
        raise Unsupported("frame-reader", reason, stack=f.stack(), break_candidates=NOWHERE)


def _locals(f: Frame) -> Any:
    """A snapshot, as later Pythons promise it."""
    made = DictValue()
    for name, value in _variables(f).items():
        made.put(f.s, Const(name), value)
    return made


def _variables(f: Frame) -> dict[str, Any]:
    """The frame's variables by name."""
    if f.names_table is not None:
        return dict(f.names_table)
    found: dict[str, Any] = {}
    for name in f.code.fast_names:
        value = read_local(f, name)
        if isinstance(value, CellValue):
            value = value.load(f.s)
        if value is not None and not name.startswith("."):
            found.setdefault(name.removesuffix(INLINED), value)
    return found


def _eval(f: Frame, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`eval` of an expression; one with functions of its own is left to Python."""
    source = args[0].native()
    try:
        code = compile(source, "<string>", "eval") if isinstance(source, str) else source
    except SyntaxError as error:
        return f.s.throw_native(error)
    if any(isinstance(c, types.CodeType) for c in code.co_consts):
        f.s.unsupported("eval", "eval of an expression with a lambda or comprehension", "Write it as code.")
    table = _variables(f) if len(args) == 1 else {}
    for space in args[1:]:
        table.update({k.native(): v for k, v in mapping_pairs(f.s, space)})
    inner = Frame(f.s, decode(code), f.scope, None)
    inner.names_table = table
    if len(args) > 1:
        inner.scope = ModuleGlobals({"__builtins__": f.scope.builtins}, None)
    return inner.run_call()


def _globals(f: Frame) -> Any:
    return f.s.wrap(f.scope.table, f.s.bind(f.scope.table, "globals()"))


def _dir(f: Frame) -> Any:
    return ListValue([Const(name) for name in sorted(_variables(f))])


#: Without arguments these ask for the frame that calls them.
FRAME_READERS = ((locals, _locals), (vars, _locals), (dir, _dir), (globals, _globals))


@op("CALL_FUNCTION_EX")
def call_function_ex(f: Frame, i: Instruction) -> None:
    keywords = f.pop() if i.arg & 1 else NULL
    given = f.pop()
    if runs_code(given) and keywords is NULL:
        given = used_up(f, listed, given)
    function, _ = called(f.stack_)
    if not walks(f.s, given):
        after = f"argument after * must be an iterable, not {given.cls.__name__}"
        f.s.throw(TypeError, f"{callee_text(function)} {after}")
    args = f.s.unpack(given)
    kwargs = {k.native(): v for k, v in mapping_pairs(f.s, keywords)} if keywords is not NULL else {}
    if not all(isinstance(name, str) for name in kwargs):
        f.s.throw(TypeError, "keywords must be strings")
    f.push(invoke(f, function, args, kwargs))


@op("MAKE_FUNCTION")
def make_function(f: Frame, i: Instruction) -> None:
    code = f.pop().native()
    f.push(FunctionValue(code, f.scope.table, code.co_name))


@op("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(f: Frame, i: Instruction) -> None:
    function, part = f.pop(), f.pop()
    FUNCTION_PARTS[i.arg](f.s, function, part)
    f.push(function)


def _defaults(s: Session, function: FunctionValue, part: Any) -> None:
    function.defaults = tuple(part.all(s))


def _kwdefaults(s: Session, function: FunctionValue, part: Any) -> None:
    function.kwdefaults = {k.native(): v for k, v in part.pairs(s)}


def _annotations(s: Session, function: FunctionValue, part: Any) -> None:
    function.annotations = part


def _closure(s: Session, function: FunctionValue, part: Any) -> None:
    function.closure = tuple(part.items)


FUNCTION_PARTS = {1: _defaults, 2: _kwdefaults, 4: _annotations, 8: _closure}


# ---------------------------------------------------------------- imports


@op("IMPORT_NAME")
def import_name(f: Frame, i: Instruction) -> None:
    level, names = f.popn(2)
    package = f.scope.table.get("__package__") or f.scope.table.get("__name__", "")
    relative = "." * level.native() + i.value
    try:
        module = importlib.import_module(relative, package) if level.native() else importlib.import_module(i.value)
    except ImportError as error:
        if not level.native():
            unguarded_facts.ask(f.s, asked.importable, i.value)
        f.s.throw_native(error)
    unguarded_facts.ask(f.s, asked.imported, module.__name__)
    plain = isinstance(names, Const) and names.value is None
    top = sys.modules[i.value.partition(".")[0]] if plain and not level.native() else module
    f.push(f.s.wrap(top, None))


@op("IMPORT_FROM")
def import_from(f: Frame, i: Instruction) -> None:
    module = f.stack_[-1]
    found = f.s.try_attr(module, i.value)
    if found is None:
        name = f"{module.real.__name__}.{i.value}"
        try:
            found = f.s.wrap(importlib.import_module(name), None)
            unguarded_facts.ask(f.s, asked.imported, name)
        except ImportError:
            unguarded_facts.ask(f.s, asked.importable, name)
            f.s.throw(ImportError, f"cannot import name {i.value!r} from {module.real.__name__!r}")
    f.push(found)

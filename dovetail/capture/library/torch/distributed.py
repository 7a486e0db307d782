"""How tensors are laid out over processes: `Shard(0)` and its like are constants, which equal ones stand for. Newer
versions of PyTorch make them in native code; where they are Python, they are traced like any object.

A group of processes is known by its identity, and its name, its size and this process's rank in it are constants. Which
group has a name is looked up again in every call: a program may end its groups and make others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from dovetail.capture.outside.wrap import WRAPPERS
from dovetail.capture.protocols.attributes import BINDERS
from dovetail.capture.tables.known_callables import FOLDED, KNOWN, Handler
from dovetail.capture.values.base import Args, Const, Kwargs, Session, Value
from dovetail.capture.values.callables import MethodValue
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Attr, Computed, Global, Source

_PLACEMENT = getattr(getattr(torch._C, "_distributed", None), "Placement", None)


def _wrap_placement(s: Session, obj: Any, source: Source | None) -> Value:
    if source is not None:
        s.guard(source, GuardKind.TYPE, type(obj))
        s.guard(source, GuardKind.EQUAL, obj)
    return Const(obj)


def _native_method(s: Session, value: Value, static: Any, name: str) -> Value:
    return MethodValue(s.wrap(static.__func__, None), value)


def _functions(cls: type) -> list[Any]:
    """What the class has in native code."""
    members = [getattr(member, "fget", member) for member in vars(cls).values()]
    return [member.__func__ for member in members if type(member).__name__ == "instancemethod"]


def _register(base: Any) -> None:
    WRAPPERS[base] = _wrap_placement
    for cls in (base, *base.__subclasses__()):
        FOLDED.update((cls, *_functions(cls)))
    unbound = type(vars(base)["is_shard"])
    BINDERS[unbound] = _native_method
    WRAPPERS[unbound] = lambda s, obj, source: s.wrap(obj.__func__, source and Attr(source, "__func__"))


if _PLACEMENT is not None:
    _register(_PLACEMENT)


def _of_group(function: Callable[[Any], Any]) -> Handler:
    def constant(s: Session, args: Args, kwargs: Kwargs) -> Value:
        group = args[0].native()
        if args[0].source is not None:
            s.guard(args[0].source, GuardKind.ID, group)
        return s.from_native(function(group))

    return constant


_RESOLVE = "_resolve_process_group"
_LOOKS_UP = Global(_RESOLVE, "torch.distributed.distributed_c10d")


def _group_of_name(s: Session, args: Args, kwargs: Kwargs) -> Value:
    name = args[0].native()
    text = repr(name).replace("{", "{{").replace("}", "}}")
    return s.wrap(getattr(distributed.distributed_c10d, _RESOLVE)(name), Computed(f"{{}}({text})", (_LOOKS_UP,)))


if distributed.is_available():
    KNOWN[getattr(distributed.distributed_c10d, _RESOLVE)] = _group_of_name
    for _member in ("group_name", "size", "rank", "name"):
        _static = vars(distributed.ProcessGroup)[_member]
        _function = getattr(_static, "fget", None) or _static.__func__
        KNOWN[_function] = _of_group(_function)

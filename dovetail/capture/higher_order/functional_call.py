"""`torch.func.functional_call`: a module called with other tensors than its own.

While the call is traced, the members named are the given values; PyTorch puts them into the module and takes them out
again, which nobody sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.utils import stateless

from dovetail.capture.higher_order.func_transforms import keyword
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import Args, Const, Kwargs, Session, Value
from dovetail.capture.values.containers import DictValue, TupleValue
from dovetail.capture.values.objects import ModuleValue
from dovetail.capture.values.tensor import TensorValue

TABLES = ("_parameters", "_buffers")


@known(stateless._functional_call)
def _functional_call(s: Session, args: Args, kwargs: Kwargs) -> Value:
    names = ("module", "parameters_and_buffers", "args", "kwargs")
    given = {**dict(zip(names, args)), **kwargs}
    module, tensors = given["module"], given["parameters_and_buffers"]
    if not isinstance(module, ModuleValue) or not isinstance(tensors, DictValue):
        return s.unsupported("functional-call", "functional_call is given no module, or tensors in no dictionary")
    positional, named = given.get("args"), given.get("kwargs")
    values = {k.native(): v for k, v in tensors.pairs(s)}
    keywords = {k.native(): v for k, v in named.pairs(s)} if isinstance(named, DictValue) else {}
    tie, strict = keyword(given, "tie_weights", True), keyword(given, "strict")
    with _replaced(s, module, _complete(s, module.native(), values, tie, strict)):
        return module.call(s, _positional(s, positional), keywords)


def _positional(s: Session, value: Value | None) -> Args:
    if value is None or isinstance(value, Const) and value.native() is None:
        return []
    return list(value.all(s)) if isinstance(value, TupleValue) else [value]


def _complete(s: Session, module: torch.nn.Module, values: Kwargs, tie: bool, strict: bool) -> Kwargs:
    """The given tensors, and those that the module ties to them under other names. PyTorch says what is wrong."""
    own: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    own.update(module.named_buffers(remove_duplicate=False))
    if not values.keys() <= own.keys() or strict and values.keys() != own.keys():
        s.unsupported("functional-call", "functional_call is given other names than the module has")
    if not all(isinstance(v, TensorValue) for v in values.values()):
        s.unsupported("functional-call", "functional_call is given something that is no tensor")
    if not tie:
        return values
    found: dict[int, Value] = {}
    for name, value in values.items():
        if found.setdefault(id(own[name]), value) is not value:
            s.unsupported("functional-call", f"{name} is tied to another tensor that functional_call is given")
    return {**{n: found[id(t)] for n, t in own.items() if id(t) in found}, **values}


@contextmanager
def _replaced(s: Session, module: ModuleValue, values: Kwargs) -> Iterator[None]:
    undo: list = []
    try:
        for name, value in values.items():
            path, _, leaf = name.rpartition(".")
            owner: Any = module
            for part in path.split(".") if path else ():
                owner = s.get_attr(owner, part)
            undo.append((owner.attrs, leaf, owner.attrs.get(leaf)))
            owner.attrs[leaf] = value
            for table in TABLES:
                members: Any = s.get_attr(owner, table)
                if leaf in members.entries:
                    undo.append((members.entries, leaf, members.entries[leaf]))
                    members.entries[leaf] = (members.entries[leaf][0], value)
        yield
    finally:
        for where, leaf, before in reversed(undo):
            if before is None:
                where.pop(leaf, None)
            else:
                where[leaf] = before

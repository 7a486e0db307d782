"""Objects as text, without the data of their tensors: what a repro calls, and what it is called with.

Tensors are written down by their metadata, or by numbers under which others keep them. What can be imported is a
reference; functions and classes of a script, of a notebook or made inside functions are written down whole, with the
globals that they mention.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import dis
import importlib
import io
import marshal
import pickle
import sys
from collections.abc import Mapping, Sequence
from functools import singledispatch
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from dovetail.ir.copies import with_history

LEFT_OUT = frozenset(("__dict__", "__weakref__"))  # of a class: made anew with it
HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement
MOST_BYTES = 1 << 26  # a repro beyond this helps nobody


def written(value: Any, kept: list[torch.Tensor] | None = None) -> str:
    """A text that `restored` makes the value of again; raises what pickling raises. Tensors are added to `kept`, if
    there is such a list."""
    stream = io.BytesIO()
    _Pickler(stream, kept).dump(value)
    if stream.tell() > MOST_BYTES:
        raise pickle.PicklingError(f"{stream.tell()} bytes are too many")
    return base64.b64encode(stream.getvalue()).decode()


def restored(text: str, kept: Sequence[torch.Tensor] = ()) -> Any:
    """What was written, its tensors with numbers that are good enough, or those that were kept."""
    return _Unpickler(io.BytesIO(base64.b64decode(text)), kept).load()


def tensor(
    sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: str, requires_grad: bool = False,
    parameter: bool = False, history: bool = False,
) -> torch.Tensor:  # fmt: skip
    """A tensor with this metadata: random numbers, or zeros where numbers may be indices. `history`: it was computed
    from another that requires gradients."""
    made = torch.empty_strided(sizes, strides, dtype=dtype, device=device)
    if dtype.is_floating_point or dtype.is_complex:
        made.copy_(torch.rand(sizes, device=device))
    else:
        made.zero_()
    made = torch.nn.Parameter(made, requires_grad) if parameter else made.requires_grad_(requires_grad)
    return computed(made) if history else made


def computed(leaf: torch.Tensor) -> torch.Tensor:
    """The same memory, as something that was computed from the leaf."""
    return with_history(leaf.detach(), leaf)


def metadata(value: torch.Tensor) -> tuple:
    """The arguments of `tensor` for one like it."""
    shape = tuple(value.shape), tuple(value.stride()), value.dtype, str(value.device)
    return *shape, value.requires_grad, isinstance(value, torch.nn.Parameter), not value.is_leaf


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, kept: list[torch.Tensor] | None) -> None:
        super().__init__(stream, protocol=5)
        self.kept = kept

    def persistent_id(self, value: Any) -> int | None:
        return None if self.kept is None or type(value) not in PLAIN else number_of(value, self.kept)

    def reducer_override(self, value: Any) -> Any:
        return _reduced(value)


PLAIN = (torch.Tensor, torch.nn.Parameter)


def number_of(tensor: torch.Tensor, kept: list[torch.Tensor]) -> int:
    """Its place in the list, to which it is added if it is not there yet."""
    if not any(tensor is other for other in kept):
        kept.append(tensor)
    return next(k for k, other in enumerate(kept) if other is tensor)


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, kept: Sequence[torch.Tensor]) -> None:
        super().__init__(stream)
        self.kept = kept

    def persistent_load(self, number: int) -> torch.Tensor:
        return self.kept[number]


def _importable(value: Any) -> bool:
    """Will another process find it where it says that it is?"""
    if isinstance(value, type) and not value.__flags__ & HEAP:
        return True  # Python's own
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    if module is None or module.__name__ == "__main__":
        return False
    found: Any = module
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


@singledispatch
def _reduced(value: Any) -> Any:
    """What `reducer_override` gives: how to make the value again, or that pickle knows."""
    return NotImplemented


@_reduced.register
def _(value: torch.Tensor) -> Any:
    return (tensor, metadata(value)) if value.layout is torch.strided else NotImplemented


@_reduced.register
def _(value: ModuleType) -> Any:
    return importlib.import_module, (value.__name__,)


@_reduced.register
def _(value: CodeType) -> Any:
    return marshal.loads, (marshal.dumps(value),)


@_reduced.register
def _(value: CellType) -> Any:
    return _empty_cell, (), _contents(value), None, None, _fill_cell


@_reduced.register
def _(value: FunctionType) -> Any:
    return NotImplemented if _importable(value) else _function(value)


@_reduced.register
def _(value: type) -> Any:
    return NotImplemented if _importable(value) else _class(value)


@_reduced.register(staticmethod)
@_reduced.register(classmethod)
def _(value: Any) -> Any:
    return type(value), (value.__func__,)


@_reduced.register
def _(value: property) -> Any:
    return type(value), (value.fget, value.fset, value.fdel, value.__doc__)


@_reduced.register
def _(value: pytree.TreeSpec) -> Any:
    """To call a leaf's class, as pickle would, is deprecated."""
    return (pytree.treespec_leaf, ()) if value.is_leaf() else NotImplemented


@_reduced.register
def _(value: torch.fx.GraphModule) -> Any:
    """As text. PyTorch's own way takes only what can be imported in it, and runs the text to have the graph again."""
    made = value.graph.python_code("self")
    mentioned = {name: each for name, each in made.globals.items() if name in made.src}
    attributes = {name: each for name, each in value.__dict__.items() if name != "_graph"}
    return _make_graph, (made.src,), (mentioned, attributes), None, None, _fill_graph


def _make_graph(source: str) -> torch.nn.Module:
    module, space = torch.nn.Module(), {"torch": torch}
    exec(source, space)
    forward: Any = space["forward"]
    module.forward = MethodType(forward, module)
    return module


def _fill_graph(module: torch.nn.Module, state: tuple) -> None:
    mentioned, attributes = state
    module.forward.__globals__.update(mentioned)
    module.__dict__.update(attributes)


def _contents(cell: CellType) -> Any:
    try:
        return (cell.cell_contents,)
    except ValueError:  # empty
        return None


def _empty_cell() -> CellType:
    return CellType()


def _fill_cell(cell: CellType, contents: tuple[Any]) -> None:
    cell.cell_contents = contents[0]


def _function(value: FunctionType) -> tuple:
    module = value.__module__ or "__main__"
    space = {name: value.__globals__[name] for name in _globals(value.__code__) if name in value.__globals__}
    state = (space, value.__defaults__, value.__kwdefaults__, value.__dict__, value.__qualname__)
    made = (value.__code__, value.__name__, module, value.__closure__)
    return _make_function, made, state, None, None, _fill_function


def _globals(code: CodeType) -> list[str]:
    """The names that the code, or code inside, loads from its globals."""
    inside = [name for c in code.co_consts if isinstance(c, CodeType) for name in _globals(c)]
    own = [i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    return list(dict.fromkeys([*own, *inside]))


def _make_function(code: CodeType, name: str, module: str, closure: Any) -> FunctionType:
    space = {"__builtins__": builtins, "__name__": module}
    return FunctionType(code, space, name, None, closure)


def _fill_function(function: FunctionType, state: tuple) -> None:
    space, function.__defaults__, function.__kwdefaults__, attributes, function.__qualname__ = state
    function.__globals__.update(space)
    function.__dict__.update(attributes)


def _class(value: type) -> tuple:
    slots = value.__dict__.get("__slots__", ())
    left = LEFT_OUT | set((slots,) if isinstance(slots, str) else slots)
    first = {name: value.__dict__[name] for name in ("__module__", "__slots__") if name in value.__dict__}
    later = {name: v for name, v in value.__dict__.items() if name not in left and name not in first}
    made = (type(value), value.__name__, value.__bases__, {**first, "__qualname__": value.__qualname__})
    return _make_class, made, _Members(later), None, None, _fill_class


def _make_class(meta: type, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> type:
    return meta(name, bases, space)


class _Members(dict[str, Any]):
    """The members of a class."""


def _fill_class(made: type, members: Mapping[str, Any]) -> None:
    for name, member in members.items():
        with contextlib.suppress(AttributeError, TypeError):  # what the class keeps for itself, as ABCMeta does
            setattr(made, name, member)

"""Objects as text, without the data of their tensors: what a repro calls, and what it is called with.

Tensors are written down by their metadata. What can be imported is a reference; functions and classes of a script, of a
notebook or made inside functions are written down whole, with the globals that they mention.
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
from collections.abc import Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

LEFT_OUT = frozenset(("__dict__", "__weakref__"))  # of a class: made anew with it
HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement
MOST_BYTES = 1 << 26  # a repro beyond this helps nobody


def written(value: Any) -> str:
    """A text that `restored` makes the value of again; raises what pickling raises."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=5).dump(value)
    if stream.tell() > MOST_BYTES:
        raise pickle.PicklingError(f"{stream.tell()} bytes are too many")
    return base64.b64encode(stream.getvalue()).decode()


def restored(text: str) -> Any:
    """What was written, its tensors with numbers that are good enough."""
    return pickle.loads(base64.b64decode(text))


def tensor(
    sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: str, requires_grad: bool = False,
    parameter: bool = False,
) -> torch.Tensor:  # fmt: skip
    """A tensor with this metadata: random numbers, or zeros where numbers may be indices."""
    made = torch.empty_strided(sizes, strides, dtype=dtype, device=device)
    if dtype.is_floating_point or dtype.is_complex:
        made.copy_(torch.rand(sizes, device=device))
    else:
        made.zero_()
    return torch.nn.Parameter(made, requires_grad) if parameter else made.requires_grad_(requires_grad)


def metadata(value: torch.Tensor) -> tuple[Any, ...]:
    """The arguments of `tensor` for one like it."""
    shape = tuple(value.shape), tuple(value.stride()), value.dtype, str(value.device)
    return *shape, value.requires_grad, isinstance(value, torch.nn.Parameter)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            return tensor, metadata(value)
        if isinstance(value, ModuleType):
            return importlib.import_module, (value.__name__,)
        if isinstance(value, CodeType):
            return marshal.loads, (marshal.dumps(value),)
        if isinstance(value, CellType):
            return _empty_cell, (), _contents(value), None, None, _fill_cell
        if isinstance(value, FunctionType) and not _importable(value):
            return _function(value)
        if isinstance(value, type) and not _importable(value):
            return _class(value)
        return NotImplemented


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


def _contents(cell: CellType) -> Any:
    try:
        return (cell.cell_contents,)
    except ValueError:  # empty
        return None


def _empty_cell() -> CellType:
    return CellType()


def _fill_cell(cell: CellType, contents: tuple[Any]) -> None:
    cell.cell_contents = contents[0]


def _function(value: FunctionType) -> tuple[Any, ...]:
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


def _fill_function(function: FunctionType, state: tuple[Any, ...]) -> None:
    space, function.__defaults__, function.__kwdefaults__, attributes, function.__qualname__ = state
    function.__globals__.update(space)
    function.__dict__.update(attributes)


def _class(value: type) -> tuple[Any, ...]:
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

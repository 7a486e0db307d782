"""Call PyTorch's functions on tensors with symbolic sizes, whatever it takes.

Some composite operators in C++ ask for plain integers. Where there is a form in Python that serves, it runs; otherwise
the compilation relies on the sizes that take part, and the function is called on plain ones.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.utils import _pytree as pytree

from dovetail.ops.fake.rules.recurrent import recurrent
from dovetail.ops.fake.rules.upsampling import RESIZING
from dovetail.ops.fake.symbolic.number import NumberNeeded
from dovetail.ops.fake.symbolic.python_forms import FUNCTIONS, METHODS
from dovetail.ops.fake.symbolic.size_questions import takes_sizes
from dovetail.ops.fake.symbolic.symbols_in_graph import sizes_in
from dovetail.ops.fake.symbolic.symint import dim_of, is_size
from dovetail.ops.own.recurrent import KINDS

_BUILT_IN = type(torch.lstm)  # other callables may hash what they are bound to
#: What PyTorch says where it wants plain integers.
_WANTS_PLAIN = (
    "on tensor with symbolic sizes/strides",
    "expected to contain only concrete integers",
    "Tried to get a plain int out of",
)


def symbolically(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, where that relies on no size that PyTorch's C++ code alone asks for."""
    own, given = _own(function, args)
    if own is not None and takes_sizes(given, kwargs):
        with suppress(NumberNeeded):
            return own(*given, **kwargs)
    try:
        return function(*args, **kwargs)
    except (NumberNeeded, RuntimeError) as error:
        if not wants_plain(error):
            raise
        first = error
    try:
        with enable_python_dispatcher():
            return function(*args, **kwargs)
    except (NumberNeeded, RuntimeError) as error:
        if not wants_plain(error):
            raise
    owner = getattr(function, "__self__", None)
    if any(not isinstance(dim_of(n), int) for n in sizes_in([owner, args, kwargs])):
        raise first
    if isinstance(owner, torch.Tensor):  # every size has turned out to be a constant, and its tensor does not know yet
        function = getattr(relied_on(owner), function.__name__)
    args, kwargs = pytree.tree_map(relied_on, (args, kwargs))
    return function(*args, **kwargs)


def methodcaller(name: str, receiver: Any, *args: Any, **kwargs: Any) -> Any:
    """As `operator.methodcaller`, with the receiver among the arguments."""
    return getattr(receiver, name)(*args, **kwargs)


def _own(function: Callable[..., Any], args: Any) -> tuple[Callable[..., Any] | None, Any]:
    """What does the function's work with symbolic sizes, where PyTorch's C++ code wants plain ones; its arguments."""
    if type(function) not in (_BUILT_IN, FunctionType):
        return None, args
    if function is methodcaller:
        return METHODS.get(args[0]), args[1:]
    receiver = getattr(function, "__self__", None)
    if isinstance(receiver, torch.Tensor):
        return METHODS.get(function.__name__), (receiver, *args)
    if function in KINDS:
        return lambda *given, **named: recurrent(function, given, named), args
    return RESIZING.get(function) or FUNCTIONS.get(function), args


def called(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, by plain sizes if need be."""
    if not takes_sizes(args, kwargs):
        return function(*args, **kwargs)
    try:
        return symbolically(function, args, kwargs)
    except (NumberNeeded, RuntimeError) as error:
        if not wants_plain(error):
            raise
    args, kwargs = pytree.tree_map(relied_on, (args, kwargs))
    return function(*args, **kwargs)


def wants_plain(error: Exception) -> bool:
    """Does the error say that plain integers are wanted?"""
    return isinstance(error, NumberNeeded) or any(text in str(error) for text in _WANTS_PLAIN)


def relied_on(value: Any) -> Any:
    """The same with plain sizes, which the compilation relies on from then on."""
    if is_size(value):
        return int(value)
    if isinstance(value, torch.Tensor) and value._has_symbolic_sizes_strides:
        for size in (*value.shape, *value.stride(), value.storage_offset()):
            if is_size(size):
                int(size)
        return torch.ops.aten.alias.default(value)
    return value

"""Tensors that are made of others: subclasses with `__tensor_flatten__`, `__tensor_unflatten__` and a dispatch of their
own (https://pytorch.org/docs/stable/notes/extending.html, "traceable wrapper subclasses"). PyTorch's nested tensors of
the layout torch.jagged are such.

The fake of such a tensor is one of its class, made of the fakes of what it is made of. An operator on it runs the
user's `__torch_dispatch__`, which calls operators on the inner fakes: so its results look as they will look.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

import torch

from dovetail.errors import Unsupported
from dovetail.ir.records import dataclass

NO_DISPATCH = torch.Tensor.__dict__["__torch_dispatch__"]
CODE = "tensor-subclass"


def handles_operators(cls: type) -> bool:
    """Does the class of tensors see every operator (`__torch_dispatch__`)?"""
    found = next(c.__dict__["__torch_dispatch__"] for c in cls.__mro__ if "__torch_dispatch__" in c.__dict__)
    return found is not NO_DISPATCH and found is not torch._C._disabled_torch_dispatch_impl


def is_wrapper(tensor: Any) -> bool:
    """Is it of a class that says what it is made of, and how it is made of that?"""
    cls = type(tensor)
    if cls is torch.Tensor or not isinstance(tensor, torch.Tensor):
        return False
    return hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__") and handles_operators(cls)


def inner(tensor: Any) -> list:
    """The plain tensors that it is made of, in the end; the tensor alone if it is plain."""
    if not is_wrapper(tensor):
        return [tensor]
    return [t for name in tensor.__tensor_flatten__()[0] for t in inner(getattr(tensor, name))]


def made_of(tensors: list) -> list:
    """The tensors, and the plain ones that they are made of."""
    return [part for t in tensors for part in ([t, *inner(t)] if is_wrapper(t) else [t])]


def rebuilt(tensor: Any, make: Callable[[Any], Any]) -> Any:
    """A tensor like this one, of what `make` gives for each plain tensor that it is made of.

    Raises Unsupported if the class makes another kind of tensor of them.
    """
    names, context = tensor.__tensor_flatten__()
    parts = {n: getattr(tensor, n) for n in names}
    if not all(isinstance(t, torch.Tensor) for t in parts.values()):
        raise Unsupported(CODE, f"{type(tensor).__name__}.__tensor_flatten__ names what is no tensor")
    made = {n: rebuilt(t, make) if is_wrapper(t) else make(t) for n, t in parts.items()}
    return assembled(type(tensor), made, context, like=tensor)


def assembled(cls: Any, parts: dict[str, Any], context: Any, like: Any) -> Any:
    """A tensor of the class made of its parts; it must look as `like` does."""
    with torch.no_grad():
        found = cls.__tensor_unflatten__(parts, context, like.size(), like.stride())
    if type(found) is not cls or metadata(found) != metadata(like):
        raise Unsupported(
            CODE, f"what {cls.__name__}.__tensor_unflatten__ makes looks other than the tensor that was taken apart",
            "Give it the sizes, strides and type that __tensor_flatten__ had.",
        )  # fmt: skip
    return found


def metadata(tensor: Any) -> tuple:
    """What a tensor looks like from outside, as one thing to compare."""
    lazy = tensor.is_conj(), tensor.is_neg()
    sizes = _nameless(tensor.size()), _nameless(tensor.stride()), tensor.storage_offset()
    return *sizes, tensor.dtype, tensor.device, tensor.layout, *lazy


def _nameless(sizes: Any) -> tuple:
    """Ragged sizes (of the layout torch.jagged) have a number for each tensor of offsets: only that they are ragged."""
    return tuple(
        ("ragged", n.node.nested_int_coeff()) if isinstance(n, torch.SymInt) and n.node.is_nested_int() else n
        for n in sizes
    )


@dataclass(frozen=True)
class Like:
    """Is a tensor like the one that was captured? Class, metadata and context of all that it is made of.

    Contexts are compared by `==`, or by the class' own `__metadata_guard__`.
    """

    facts: tuple
    contexts: tuple = field(compare=False)

    def __call__(self, tensor: Any) -> bool:
        with torch._C.DisableTorchFunctionSubclass():
            if tuple(_facts(tensor)) != self.facts:
                return False
            return all(map(same_context, _classes(tensor), self.contexts, _contexts(tensor)))


def like(tensor: Any) -> Like:
    """Raises Unsupported if a context is such that nobody can tell when another is the same."""
    contexts = []
    for cls, context in zip(_classes(tensor), _contexts(tensor), strict=True):
        try:
            kept = copy.deepcopy(context)
            comparable = same_context(cls, kept, context)
        except Exception as error:  # whatever the user's classes raise
            raise _incomparable(cls) from error
        if not comparable:
            raise _incomparable(cls)
        contexts.append(kept)
    return Like(tuple(_facts(tensor)), tuple(contexts))


def _incomparable(cls: type) -> Unsupported:
    return Unsupported(
        CODE, f"the context that {cls.__name__}.__tensor_flatten__ gives does not compare equal to a copy of itself",
        "Give the objects in it an __eq__, or the class a __metadata_guard__.",
    )  # fmt: skip


def same_context(cls: Any, kept: Any, context: Any) -> bool:
    """Does the class itself say that two contexts are alike? Otherwise equality does."""
    own = getattr(cls, "__metadata_guard__", None)
    return bool(own(kept, context)) if own is not None else type(kept) is type(context) and bool(kept == context)


def _wrappers(tensor: Any) -> Iterator[Any]:
    if is_wrapper(tensor):
        yield tensor
        for name in tensor.__tensor_flatten__()[0]:
            yield from _wrappers(getattr(tensor, name))


def _classes(tensor: Any) -> list[type]:
    return [type(t) for t in _wrappers(tensor)]


def _contexts(tensor: Any) -> list:
    return [t.__tensor_flatten__()[1] for t in _wrappers(tensor)]


def _facts(tensor: Any) -> Iterator[Any]:
    keys = torch._C._dispatch_keys(tensor).raw_repr()
    yield type(tensor), *metadata(tensor), tensor.requires_grad, keys
    if is_wrapper(tensor):
        names = tuple(tensor.__tensor_flatten__()[0])
        yield names
        for name in names:
            yield from _facts(getattr(tensor, name))

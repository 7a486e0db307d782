"""Tensors that are made of others: subclasses with `__tensor_flatten__`, `__tensor_unflatten__` and a dispatch of their
own (https://pytorch.org/docs/stable/notes/extending.html, "traceable wrapper subclasses"). PyTorch's nested tensors of
the layout torch.jagged are such.

The fake of such a tensor is one of its class, made of the fakes of what it is made of. An operator on it runs the
user's `__torch_dispatch__`, which calls operators on the inner fakes: so its results look as they will look.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Set
from dataclasses import field
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.errors import Unsupported
from dovetail.ir.records import dataclass
from dovetail.ops.fake.symbolic.size_questions import hint, symbolic

NO_DISPATCH = torch.Tensor.__dict__["__torch_dispatch__"]
CODE = "tensor-subclass"
SIZES: Any = torch.Tensor.size, torch.Tensor.stride


def handles_operators(cls: type) -> bool:
    """Does the class of tensors see every operator (`__torch_dispatch__`)?"""
    found = next(c.__dict__["__torch_dispatch__"] for c in cls.__mro__ if "__torch_dispatch__" in c.__dict__)
    return found is not NO_DISPATCH and found is not torch._C._disabled_torch_dispatch_impl


def is_wrapper(tensor: Any) -> bool:
    """Is it of a class that says what it is made of, and how it is made of that?"""
    cls = type(tensor)
    return cls is not torch.Tensor and isinstance(tensor, torch.Tensor) and says_what_it_is_made_of(cls)


def says_what_it_is_made_of(cls: type) -> bool:
    return hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__") and handles_operators(cls)


def inner(tensor: Any) -> list:
    """The plain tensors that it is made of, in the end; the tensor alone if it is plain."""
    if not is_wrapper(tensor):
        return [tensor]
    return [t for part in parts(tensor).values() if isinstance(part, torch.Tensor) for t in inner(part)]


def parts(tensor: Any) -> dict[str, Any]:
    """What it is made of, by the names that it gives: tensors, and what PyTorch lets stand beside them, such as the
    mesh that a distributed tensor lies on."""
    return {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}


def made_of(tensors: list) -> list:
    """The tensors, and the plain ones that they are made of."""
    return [part for t in tensors for part in ([t, *inner(t)] if is_wrapper(t) else [t])]


def rebuilt(tensor: Any, make: Callable[[Any], Any]) -> Any:
    """A tensor like this one, of what `make` gives for each plain tensor that it is made of: of the same sizes, or of
    symbolic ones, which the tensor then has where its sizes are theirs.

    Raises Unsupported if the class makes another kind of tensor of them.
    """

    def again(part: Any) -> Any:
        if not isinstance(part, torch.Tensor):
            return part
        return rebuilt(part, make) if is_wrapper(part) else make(part)

    made = {name: again(part) for name, part in parts(tensor).items()}
    return assembled(type(tensor), made, tensor.__tensor_flatten__()[1], like=tensor)


def in_numbers(tensor: Any, make: Callable[[Any], Any], number: Callable[[Any], int]) -> Any:
    """The same for one whose sizes vary, of which `number` says what they are."""

    def again(part: Any) -> Any:
        if not isinstance(part, torch.Tensor):
            return part
        return in_numbers(part, make, number) if is_wrapper(part) else make(part)

    made = {name: again(part) for name, part in parts(tensor).items()}
    size, stride = (tuple(map(number, of(tensor))) for of in SIZES)
    with torch.no_grad():
        return type(tensor).__tensor_unflatten__(made, tensor.__tensor_flatten__()[1], torch.Size(size), stride)


def assembled(cls: Any, made: dict[str, Any], context: Any, like: Any) -> Any:
    """A tensor of the class made of its parts; it must look as `like` does."""
    size, stride = (_in_symbols(like, made, of) for of in SIZES)
    with torch.no_grad():
        found = cls.__tensor_unflatten__(made, context, torch.Size(size), tuple(stride))
    if type(found) is not cls or metadata(found) != metadata(like):
        raise Unsupported(
            CODE, f"what {cls.__name__}.__tensor_unflatten__ makes looks other than the tensor that was taken apart",
            "Give it the sizes, strides and type that __tensor_flatten__ had.",
        )  # fmt: skip
    return found


def _in_symbols(like: Any, made: dict[str, Any], of: Callable[[Any], Any]) -> Any:
    """The sizes of `like`, or its strides, with those of what it will be made of where they vary."""
    if like.layout is torch.jagged or not any(map(_varies, made.values())):
        return of(like)
    own, new = list(parts(like).values()), list(made.values())
    places = _told_by(of(like), own, of, [k for k, part in enumerate(new) if _varies(part)])
    return [of(new[place[0]])[place[1]] if isinstance(place, tuple) else place for place in places]


def _varies(tensor: Any) -> bool:
    strided = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    return strided and symbolic((*tensor.shape, *tensor.stride()))


def _told_by(sizes: Any, made_of: list, of: Callable[[Any], Any], varying: list[int]) -> list:
    """Each size as (part, dimension) of a part whose sizes vary, at the same dimension if possible; else as it is."""
    found: list = []
    for k, size in enumerate(sizes):
        places = [(p, d) for p in varying for d, n in enumerate(of(made_of[p])) if n == size]
        found.append(next((place for place in places if place[1] == k), places[0] if places else size))
    return found


def metadata(tensor: Any) -> tuple:
    """What a tensor looks like from outside, as one thing to compare."""
    lazy = tensor.is_conj(), tensor.is_neg()
    sizes = _nameless(tensor.size()), _nameless(tensor.stride()), tensor.storage_offset()
    return *sizes, tensor.dtype, tensor.device, tensor.layout, *lazy


def _nameless(sizes: Any) -> tuple:
    """Ragged sizes (of the layout torch.jagged) have a number for each tensor of offsets: only that they are ragged. Of
    sizes that vary it is those of the call that is compiled."""
    return tuple(
        n if not isinstance(n, torch.SymInt) else ("ragged", n.node.nested_int_coeff())
        if n.node.is_nested_int() else hint(n)
        for n in sizes
    )  # fmt: skip


@dataclass(frozen=True)
class Like:
    """Is a tensor like the one that was captured? Class, metadata and context of all that it is made of.

    Contexts are compared by `==`, or by the class' own `__metadata_guard__`. `varying`: paths to parts whose sizes may
    be others; those of the whole are the same function of them.
    """

    facts: tuple
    contexts: tuple = field(compare=False)
    varying: frozenset[tuple[str, ...]] = frozenset()

    @property
    def beside(self) -> list:
        """What it has among its parts that is no tensor."""
        return [fact.value for fact in self.facts if isinstance(fact, Same)]

    def fits(self, tensor: Any) -> bool:
        with torch._C.DisableTorchFunctionSubclass():
            if tuple(_facts(tensor, self.varying)) != self.facts:
                return False
            return all(map(same_context, _classes(tensor), self.contexts, _contexts(tensor)))


def like(tensor: Any, varying: frozenset[tuple[str, ...]] = frozenset()) -> Like:
    """Raises Unsupported if a context is such that nobody can tell when another is the same."""
    contexts = []
    for cls, context in zip(_classes(tensor), _contexts(tensor), strict=True):
        try:
            kept = copied(context)
            with _disable_current_modes():
                comparable = same_context(cls, kept, context)
        except Exception as error:  # whatever the user's classes raise
            raise _incomparable(cls) from error
        if not comparable:
            raise _incomparable(cls)
        contexts.append(kept)
    return Like(tuple(_facts(tensor, varying)), tuple(contexts), varying)


def copied(thing: Any) -> Any:
    """A copy of what a tensor keeps beside its parts. The tensors in it, as of a mesh, are as real as it is."""
    with _disable_current_modes():
        return copy.deepcopy(thing)


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
        for part in parts(tensor).values():
            yield from _wrappers(part)


def _classes(tensor: Any) -> list[type]:
    return [type(t) for t in _wrappers(tensor)]


def _contexts(tensor: Any) -> list:
    return [t.__tensor_flatten__()[1] for t in _wrappers(tensor)]


def _facts(tensor: Any, varying: Set[tuple[str, ...]], path: tuple[str, ...] = ()) -> Iterator[Any]:
    if not isinstance(tensor, torch.Tensor):
        yield Same(tensor)
        return
    keys = torch._C._dispatch_keys(tensor).raw_repr()
    sizes, strides, *rest = metadata(tensor)
    found = parts(tensor) if is_wrapper(tensor) else {}
    below = [k for k, name in enumerate(found) if any(v[: len(path) + 1] == (*path, name) for v in varying)]
    if path in varying or below and tensor.layout is torch.jagged:
        sizes = strides = (tensor.dim(),)
    elif below:
        made_of = list(found.values())
        sizes, strides = (tuple(_told_by(of(tensor), made_of, of, below)) for of in SIZES)
    yield type(tensor), sizes, strides, *rest, tensor.requires_grad, keys
    if is_wrapper(tensor):
        yield tuple(found)
        for name, part in found.items():
            yield from _facts(part, varying, (*path, name))


@dataclass(frozen=True, eq=False)
class Same:
    """Equal to that of the same object alone."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

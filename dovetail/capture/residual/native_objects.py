"""Objects of native classes: the expression that makes one like it."""

from __future__ import annotations

import copy
import functools
import itertools
import random
import types
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy
import torch
import torch.fx

from dovetail.capture.outside.surely_alive import held
from dovetail.capture.values.objects import ObjectValue

if TYPE_CHECKING:
    from dovetail.capture.residual.rebuild import Rebuilder


def native_init(cls: type) -> Any:
    """The `__init__` in native code that the class's own ones end at."""
    inits = (base.__dict__.get("__init__") for base in cls.__mro__)
    return next(init for init in inits if init is not None and not isinstance(init, FunctionType))


AUTOMATIC = (types.GetSetDescriptorType, types.MemberDescriptorType)  # Python makes these for a class itself


def _partial(rebuilder: Rebuilder, value: ObjectValue) -> str:
    function, args, keywords = (rebuilder.expr(value.attrs[n]) for n in ("func", "args", "keywords"))
    return rebuilder.start(value, f"{rebuilder.known(value.cls)}({function}, *{args}, **{keywords})")


def _copied(rebuilder: Rebuilder, value: ObjectValue) -> str:
    return rebuilder.start(value, f"{rebuilder.known(copy.copy)}({rebuilder.known(value.made_by)})")


def _inference_mode(rebuilder: Rebuilder, value: ObjectValue) -> str:
    text = rebuilder.start(value, f"{rebuilder.known(value.cls)}({rebuilder.expr(value.attrs['mode'])})")
    rebuilder.attributes(value, text)  # what leaving undoes
    return text


def _reference(rebuilder: Rebuilder, value: ObjectValue) -> str:
    """Where the graph breaks, the residual must not keep alive what nothing else holds."""
    target = value.attrs["target"]
    if rebuilder.s.frames and not held(rebuilder.s, target):
        rebuilder.s.unsupported("weak-reference", f"whether {target.describe()} is still alive cannot be told")
    return rebuilder.start(value, f"{rebuilder.known(value.cls)}({rebuilder.expr(value.attrs['target'])})")


def _generator(rebuilder: Rebuilder, value: ObjectValue) -> str:
    """It has been made, and has drawn, before the graph ran."""
    return rebuilder.start(value, value.made_by.expr())


MAKERS: dict[type, Callable[[Rebuilder, ObjectValue], str]] = {
    functools.partial: _partial,
    torch.autocast: _copied,
    torch.inference_mode: _inference_mode,
    weakref.ref: _reference,
    **dict.fromkeys((random.Random, numpy.random.RandomState, numpy.random.Generator), _generator),
}


# ---------------------------------------------------------------- iterators of itertools

# Those that leave the compiled function are made of the generators that stand for them while capturing.
#
#     rest = chain(a, b); next(rest); return rest     ->      chain(generator of what is left)


def _second(first: Any, second: Any) -> Any:
    return second


def _same(item: Any) -> Any:
    return item


def _always(item: Any) -> bool:
    return True


def _never(item: Any) -> bool:
    return False


#: Those that give, of what another iterator gives, all of it.
REST: dict[type, Callable[[Iterator[Any]], Any]] = {
    itertools.chain: itertools.chain,
    itertools.islice: lambda rest: itertools.islice(rest, None),
    itertools.accumulate: lambda rest: itertools.accumulate(rest, _second),
    itertools.cycle: itertools.cycle,
    itertools.compress: lambda rest: itertools.compress(rest, itertools.repeat(True)),
    itertools.starmap: lambda rest: itertools.starmap(_same, zip(rest)),  # noqa: RUF058 (for its class)
    itertools.takewhile: lambda rest: itertools.takewhile(_always, rest),
    itertools.dropwhile: lambda rest: itertools.dropwhile(_never, rest),
    itertools.filterfalse: lambda rest: itertools.filterfalse(_never, rest),
}

#: Those of the others that can come to their end.
ENDED: dict[type, Callable[[], Any]] = {
    itertools.repeat: lambda: itertools.repeat(None, 0),
    itertools.product: lambda: itertools.product(()),
    itertools.permutations: lambda: itertools.permutations((), 1),
    itertools.combinations: lambda: itertools.combinations((), 1),
    itertools.combinations_with_replacement: lambda: itertools.combinations_with_replacement((), 1),
    itertools.zip_longest: lambda: itertools.zip_longest(()),
    itertools.pairwise: lambda: itertools.pairwise(()),
    itertools.groupby: lambda: itertools.groupby(()),
}


def ended(cls: type) -> Any:
    """An iterator of this class that has come to its end."""
    return ENDED[cls]() if cls in ENDED else REST[cls](iter(()))

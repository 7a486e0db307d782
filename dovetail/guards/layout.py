"""Which machine words change when an object changes: found by experiment, never assumed.

A dictionary has a word that every store changes, its version; in CPython 3.13 an attribute's store may go past it, to
values that the dictionary shares with its object. An object's dictionary and type are words before and in it, a
tensor's implementation has words for storage, sizes, strides, offset, dtype and dispatch keys. `discover` changes
sample objects in every way that guards care about and watches their memory. Where an experiment does not come out as
expected (another CPython, another PyTorch), there is no layout, and guards read the same facts through Python, more
slowly.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import torch

from dovetail.ir.devices import HOST
from dovetail.ir.records import dataclass

_WORD = 8
_DICT_WORDS = 6
_IMPL_WORDS = 23  # a TensorImpl is 22 words long or 23; malloc gives both as much
_META_WORDS = 20  # an AutogradMeta is longer
_STORAGE_WORDS = 8
MAX_RANK = 5  # sizes and strides of higher ranks lie outside the TensorImpl


@dataclass(frozen=True)
class ObjectLayout:
    """Byte offsets. `impl` is (first, words) of each run of words in a TensorImpl that say what the tensor is.

    `dict_values` points to the values shared with an object, where the version does not tell of them. `history` are
    the words of the autograd data that say what a tensor was computed from; `meta_requires_grad` says too whether it
    is a view. `function` are a function's code and defaults, `hooks` a tensor object's hooks, `weak_object` what a weak
    reference refers to, None where not found.
    """

    dict_version: int
    dict_values: int | None
    object_type: int
    object_dict: int  # from an object whose class has a negative `__dictoffset__`
    tensor_impl: int
    impl: tuple[tuple[int, int], ...]
    impl_storage: int
    impl_meta: int
    meta_requires_grad: int
    history: tuple[int, ...]
    storage_data: int
    function: tuple[int, ...] | None
    hooks: tuple[int, ...] | None
    weak_object: int | None  # of a weak reference: what it refers to


def words(address: int, count: int) -> tuple[int, ...]:
    """`count` machine words at `address`, which the caller knows to be readable."""
    return tuple((ctypes.c_uint64 * count).from_address(address))


@cache
def discover() -> ObjectLayout | None:
    """The layout of this process, or None where it is not as expected."""
    table, sample = _dict_words(), _Sample()
    with torch.inference_mode(False), torch.no_grad(), torch._C.DisableTorchFunction():  # whatever the program has on
        impl, hooks = _tensor_words(), _hook_words()
    kind = _only(k for k, w in enumerate(words(id(sample), 2)) if w == id(_Sample))
    own = _own_dict_word()
    if table is None or impl is None or kind is None or own is None:
        return None
    more: dict[str, Any] = {"function": _function_words(), "hooks": hooks, "weak_object": _weak_word()}
    version, values = table
    return ObjectLayout(version, values, kind * _WORD, own * _WORD, **impl, **more)


def _only(found: Iterable[int]) -> int | None:
    """The one member, None if there are none or several."""
    every = list(found)
    return every[0] if len(every) == 1 else None


def _changed(address: int, count: int, change: Callable[[], Any]) -> set[int]:
    before = words(address, count)
    change()
    after = words(address, count)
    return {k for k in range(count) if before[k] != after[k]}


# ---------------------------------------------------------------- dictionaries


class _Sample:
    """An object like a module: attributes in an instance dictionary, some stored through `__setattr__`."""

    def __init__(self) -> None:
        self.a, self.b = 1000, 2000

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def _store_often(obj: Any) -> None:
    for value in range(5000, 5100):  # enough for the interpreter to specialise the store
        obj.a = value


def _through_the_dict() -> list[tuple[Any, Callable[[Any], Any]]]:
    """(a dictionary, a change of it)"""
    changes: list[Callable[[Any], Any]] = [
        lambda d: d.__setitem__("a", 3000),
        lambda d: d.__setitem__("new", 3000),
        lambda d: d.update(a=3001),
        lambda d: d.pop("a"),
        lambda d: d.clear(),
    ]
    makers: tuple[Callable[[], Any], ...] = (
        lambda: {"a": 1, "b": 2}, lambda: OrderedDict(a=1, b=2), lambda: _Sample().__dict__,
    )  # fmt: skip
    return [(make(), change) for change in changes for make in makers]


def _through_the_object() -> list[tuple[Any, Callable[[Any], Any]]]:
    """(an object's dictionary, a change of the object)"""
    rows: list[tuple[Any, Callable[[Any], Any]]] = []
    for act in (
        _store_often,
        lambda obj: setattr(obj, "a", 7000),
        lambda obj: object.__setattr__(obj, "c", 7000),
        lambda obj: delattr(obj, "a"),
    ):
        for own in (None, {"a": 1, "b": 2}):
            obj = _Sample()
            if own is not None:
                object.__setattr__(obj, "__dict__", own)
            rows.append((obj.__dict__, lambda d, obj=obj, act=act: act(obj)))  # type: ignore[misc]
    return rows


def dict_runs(table: Any, version: int, values: int | None) -> list[tuple[int, int]]:
    """(address, words) of what changes with the dictionary, each address held by the run before it."""
    runs = [(id(table) + version, 1)]
    if values is not None:
        runs.append((id(table) + values, 1))
        shared = words(*runs[-1])[0]
        if shared:
            runs.append((shared, 1 + _capacity(shared)))
    return runs


def _capacity(shared: int) -> int:
    """How many words follow the first word of shared values: that one's first byte."""
    return words(shared, 1)[0] & 0xFF


def _dict_words() -> tuple[int, int | None] | None:
    """Offsets of a dictionary's version, and of the pointer to shared values if they are needed."""
    common = set(range(2, _DICT_WORDS))
    for made, change in _through_the_dict():
        common &= _changed(id(made), _DICT_WORDS, partial(change, made))
    sample = {"a": 1}
    common -= _changed(id(sample), _DICT_WORDS, lambda: (sample["a"], "a" in sample, list(sample), len(sample)))
    version = _only(common)
    if version is None:
        return None
    for values in (None, _shared_values_word()):
        if all(_tells(row, version * _WORD, values) for row in _through_the_object()):
            return version * _WORD, values
    return None


def _tells(row: tuple[Any, Callable[[Any], Any]], version: int, values: int | None) -> bool:
    table, change = row
    before = [words(*run) for run in dict_runs(table, version, values)]
    change(table)
    return before != [words(*run) for run in dict_runs(table, version, values)]


def _shared_values_word() -> int | None:
    """Offset of the pointer that only an object's own dictionary has, if the attributes' values lie behind it."""
    obj = _Sample()
    own, plain = words(id(obj.__dict__), _DICT_WORDS), words(id({"a": 1}), _DICT_WORDS)
    found = _only(k for k in range(2, _DICT_WORDS) if own[k] and not plain[k])
    if found is None:
        return None
    inside = words(own[found] + _WORD, _capacity(own[found]))
    return found * _WORD if id(obj.a) in inside and id(obj.b) in inside else None


_BEFORE = 4  # an object may have so many words before its first


def _own_dict_word() -> int | None:
    """Which word of an object, counted from its first, points to its dictionary."""
    obj = _Sample()
    own, first = obj.__dict__, id(obj) - _BEFORE * _WORD  # the dictionary is made when it is first asked for
    if _Sample.__dictoffset__ >= 0:
        return None
    place = _only(k for k, w in enumerate(words(first, _BEFORE)) if w == id(own))
    if place is None or place not in _changed(first, _BEFORE, lambda: object.__setattr__(obj, "__dict__", {})):
        return None
    return place - _BEFORE


# ---------------------------------------------------------------- tensors


def _sample() -> torch.Tensor:
    return torch.zeros(2, 3, 4, 5, 6, dtype=torch.float32, device=HOST)


def _set_data(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], Any]:
    return lambda t: setattr(t, "data", make(t.data))


#: Everything about a tensor that a guard may rely on, each changed alone. Small: what OpenMP shares among threads
#: hangs in a process forked from one that has used OpenMP.
_TENSOR_CHANGES: tuple[Callable[[torch.Tensor], Any], ...] = (
    _set_data(torch.clone),
    _set_data(lambda d: d.new_zeros(3, 4, 5, 6, 7)),
    _set_data(lambda d: d.new_zeros(7)),
    _set_data(lambda d: d.permute(4, 3, 2, 1, 0)),
    _set_data(lambda d: d[1:]),
    _set_data(lambda d: d.view(torch.int32)),
    _set_data(lambda d: d.double()),
    _set_data(torch._neg_view),
    lambda t: t.resize_(3, 3),
    lambda t: t.set_(t.new_ones(2)),  # type: ignore[call-overload]
)


_FUNCTION_WORDS = 16  # a function object is longer


def _function_words() -> tuple[int, ...] | None:
    """Where a function keeps its code, its defaults and its keyword defaults."""

    def sample(a: int = 1000, *, b: int = 2000) -> None: ...

    def other(a: int = 3000, *, b: int = 4000) -> None: ...

    found = []
    for part in ("__code__", "__defaults__", "__kwdefaults__"):
        place = _only(k for k, w in enumerate(words(id(sample), _FUNCTION_WORDS)) if w == id(getattr(sample, part)))
        change = partial(setattr, sample, part, getattr(other, part))
        if place is None or place not in _changed(id(sample), _FUNCTION_WORDS, change):
            return None
        found.append(place * _WORD)
    return tuple(found)


class _Ref(weakref.ref[Any]):
    __slots__ = ()


def _weak_word() -> int | None:
    """Which word of a weak reference is its object while that lives, and something else from then on."""
    alive = [_Sample()]
    ref, address = _Ref(alive[0]), id(alive[0])
    count = _Ref.__basicsize__ // _WORD
    place = _only(k for k, w in enumerate(words(id(ref), count)) if w == address)
    if place is None or place not in _changed(id(ref), count, alive.clear):
        return None
    return place * _WORD


def _tensor_words() -> dict[str, Any] | None:
    sample = _sample()
    storage = sample.untyped_storage()._cdata
    pointer = _only(k for k, w in enumerate(words(id(sample), 6)) if w == sample._cdata)
    held = _only(k for k, w in enumerate(words(sample._cdata, _IMPL_WORDS)) if w == storage)
    data = [k for k, w in enumerate(words(storage, _STORAGE_WORDS)) if w == sample.data_ptr()]
    grad = _requires_grad_words()
    history = None if grad is None else _history_words(*grad)
    if pointer is None or held is None or not data or grad is None or history is None:
        return None
    watched = {held}
    for change in _TENSOR_CHANGES:
        t = _sample()
        changed = _changed(t._cdata, _IMPL_WORDS, partial(change, t))
        if not changed:
            return None
        watched |= changed
    for act in (lambda t: t.mul_(2), lambda t: setattr(t, "note", 1), lambda t: t.numpy(), lambda t: t.clone()):
        t = _sample()
        if watched & _changed(t._cdata, _IMPL_WORDS, partial(act, t)):
            return None
    return {
        "tensor_impl": pointer * _WORD, "impl": _runs(watched | {grad[0]}), "impl_storage": held * _WORD,
        "impl_meta": grad[0] * _WORD, "meta_requires_grad": grad[1] * _WORD, "history": history,
        "storage_data": data[0] * _WORD,
    }  # fmt: skip


def _requires_grad_words() -> tuple[int, int] | None:
    """Where the autograd data hangs in a TensorImpl (null at first), and the word in it that requires_grad changes."""
    t, other = _sample(), _sample()
    meta = _only(_changed(t._cdata, _IMPL_WORDS, lambda: t.requires_grad_(True)))
    if meta is None:
        return None
    address = words(t._cdata, _IMPL_WORDS)[meta]
    flag = _only(_changed(address, _META_WORDS, lambda: t.requires_grad_(False)))
    if flag is None or _changed(address, _META_WORDS, lambda: t.requires_grad_(True)) != {flag}:
        return None
    kept = words(t._cdata, _IMPL_WORDS)[meta] == address and not words(other._cdata, _IMPL_WORDS)[meta]
    return (meta, flag) if kept else None


def _hook_words() -> tuple[int, ...] | None:
    """Which words of a tensor object hooks change."""
    t = _sample().requires_grad_(True)
    count = torch._C.TensorBase.__basicsize__ // _WORD
    kinds = (t.register_hook, t.register_post_accumulate_grad_hook)
    found = [_only(_changed(id(t), count, partial(add, lambda *given: None))) for add in kinds]
    places = tuple(k * _WORD for k in found if k is not None)
    return places if len(set(places)) == len(found) else None


def _history_words(meta: int, flag: int) -> tuple[int, ...] | None:
    """Which words of the autograd data change when a leaf becomes a result; None unless word `flag` tells views too."""
    leaf, other = _sample().requires_grad_(True).requires_grad_(False), _sample().requires_grad_(True)
    address = words(leaf._cdata, _IMPL_WORDS)[meta]
    with torch.enable_grad():
        changed = _changed(address, _META_WORDS, lambda: leaf.mul_(other))
        results = other.clone(), other.clone().view(-1)
    flags = {words(words(t._cdata, _IMPL_WORDS)[meta], _META_WORDS)[flag] for t in results}
    if not changed or words(leaf._cdata, _IMPL_WORDS)[meta] != address or len(flags) == 1:
        return None
    return tuple(k * _WORD for k in sorted(changed))


def _runs(found: set[int]) -> tuple[tuple[int, int], ...]:
    """Neighbouring words as (byte offset, count)."""
    runs: list[list[int]] = []
    for k in sorted(found):
        if runs and runs[-1][0] + runs[-1][1] == k:
            runs[-1][1] += 1
        else:
            runs.append([k, 1])
    return tuple((first * _WORD, count) for first, count in runs)

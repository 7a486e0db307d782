"""Which compilations another process has left for a call, and leaving some.

A shelf is a list under the key of a function, its code, the options, the versions and the machine. Whatever else a
compilation relies on is checked when it is taken (`entry.py`); those for modules like the one at hand are tried before
others, those for one size, or one round of a loop, before those for any.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import torch

from dovetail import guards
from dovetail.ir.captured import Captured
from dovetail.ir.records import dataclass
from dovetail.ir.source import Standing
from dovetail.ir.walks import Walk
from dovetail.kept.objects import PLAIN, Unkept, continuation_of, making
from dovetail.options import Options
from dovetail.runtime.store import Store, default_folder

MOST = 64  # compilations on one shelf
FORMAT = "entry 5"
TRIED = 8  # compilations for one call
MANY = 100  # modules of which the attributes are looked at
LIST = b"shelf 2\n"
ONCE = "once "
WALK = "walk"  # the kind of an iterator, beside types of elements
#: Variables that PyTorch and its libraries read when they are imported, or later.
READ = ("TORCH", "PYTORCH", "ATEN", "CUDA", "CUBLAS", "NVIDIA", "OMP", "MKL", "KMP", "ONEDNN", "DNNL")


def key_of(fn: Any, options: Options, taken: guards.Snapshot) -> str:
    """Of the shelf for calls of `fn`. Raises Unkept for a function that no other process has."""
    function = guards.root_function(fn)
    if function is None:
        raise Unkept("it is no function of Python's")
    rest = continuation_of(fn)
    if rest is not None and rest.inside:
        raise Unkept("a generator waits in it")
    parts = [
        FORMAT, machine(devices()), torch.get_num_threads(), making(function), making(type(fn)),
        rest and (making(rest.points), [scope.get("__name__") for scope in rest.scopes]),
        options.cache_key(), options.fullgraph,
        sorted(str(making(f)) for f in options.reorderable_logging_functions),
        state(taken),
    ]  # fmt: skip
    return digest(parts)


def state(taken: guards.Snapshot) -> list[tuple[str, str]]:
    """Modes and settings, as plain data."""
    return sorted((name, str(value)) for name, value in taken.values.items())


def digest(parts: list) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def devices() -> tuple[str, ...]:
    """What CUDA devices are called, or how many there are. Asking for names begins to use CUDA, which takes memory and
    keeps forked processes from using it: nothing that a program on the CPU should cost."""
    count = torch.cuda.device_count()
    if not torch.cuda.is_initialized():
        return (f"{count} that are not in use",) if count else ()
    return tuple(torch.cuda.get_device_name(k) for k in range(count))


@cache
def machine(devices: tuple[str, ...]) -> str:
    """Versions, the processor's kind, devices, and what they are told by the environment, as JSON."""
    return json.dumps({
        "Python": sys.version,
        "PyTorch": f"{torch.__version__} {torch.version.git_version}",
        "NumPy": numpy.__version__,
        "dovetail": _own_code(),
        "the processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "oneDNN": torch.backends.mkldnn.is_available(),
        "the devices": devices,
        "the environment": sorted((k, v) for k, v in os.environ.items() if k.startswith(READ)),
        "-O": sys.flags.optimize,
    })  # fmt: skip


def _own_code() -> str:
    """A digest of this package's files. Reading them takes 10 ms, so it is kept while nobody writes to them."""
    paths = _files(str(Path(__file__).parent.parent))
    stats = ((path, os.stat(path)) for path in paths)
    seen = digest(["own code", *((path, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for path, s in stats)])
    store = Store(default_folder())
    known = store.get(seen)
    if known is None:
        known = _of_contents(paths).encode()
        store.put(seen, known)
    return known.decode()


def _of_contents(paths: Sequence[str]) -> str:
    found = hashlib.sha256()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            found.update(file.read())
    return found.hexdigest()


def _files(package: str) -> list[str]:
    found = []
    for folder, folders, names in os.walk(package):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [f"{folder}/{name}" for name in names if name.endswith(".py")]
    return sorted(found)


def outline(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list:
    """The types of the arguments, with the sizes of tensors, and how far iterators of suspended loops have come."""
    return [_outlined(v) for v in (*args, *(v for _, v in sorted(kwargs.items())))]


def _outlined(value: Any) -> Any:
    if type(value) is Walk:
        return [WALK, *_rounds(value)]
    return [str(value.dtype), *value.shape] if _has_sizes(value) else type(value).__name__


def _rounds(walk: Walk) -> list[int]:
    return [walk.position, *(n for part in walk.parts if type(part) is Walk for n in _rounds(part))]


def made_for(args: Sequence[Any], kwargs: Mapping[str, Any], captured: Captured) -> list:
    """The outline of the calls that a compilation fits, which was made for this one."""
    rounds = any(type(guard.source) is Standing for guard in captured.guards)

    def relied_on(kind: str) -> bool:
        return rounds if kind == WALK else not captured.symbols

    return [
        [each[0], *[None] * (len(each) - 1)] if type(each) is list and not relied_on(each[0]) else each
        for each in outline(args, kwargs)
    ]


def _has_sizes(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested


@dataclass(frozen=True)
class Row:
    """A compilation on a shelf: its key, the outline of the calls that it fits, with None for any size, and what the
    module is like that it was made for."""

    name: str
    made_for: list
    like: str = ""


def likeness(fn: Any) -> str:
    """A digest of the plain attributes of a module, and of those inside: many of one class share a shelf."""
    module = fn if isinstance(fn, torch.nn.Module) else getattr(fn, "__self__", None)
    if not isinstance(module, torch.nn.Module):
        return ""
    parts = itertools.islice(module.modules(), MANY)
    return digest([[(k, v) for k, v in vars(part).items() if type(v) in PLAIN] for part in parts])


def on_shelf(
    store: Store, key: str, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, bytes]]:
    """The compilations that may fit the call, each with its own key: the likeliest first, then the newest."""
    now = outline(args, kwargs)
    fit = [row for row in _listed(store.get(key)) if _may_fit(row.made_for, now) and not row.name.startswith(ONCE)]
    like = likeness(fn) if len(fit) > 1 else ""
    for row in sorted(fit, key=lambda row: (row.like != like, row.made_for != now))[:TRIED]:
        data = store.get(row.name)
        if data is not None:
            yield row.name, data


def put(store: Store, key: str, data: bytes, made_for: list, like: str) -> str:
    """Lay a compilation on the shelf; its own key."""
    name = hashlib.sha256(data).hexdigest()
    store.put(name, data)
    _list(store, key, [Row(name, made_for, like), *_listed(store.get(key))])
    return name


def put_once(store: Store, key: str, made_for: list) -> None:
    """Note that such a call changes what it relies on: what is compiled for it fits no other."""
    _list(store, key, [Row(f"{ONCE}{digest(made_for)}", made_for), *_listed(store.get(key))])


def once_on_shelf(store: Store, key: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Is there such a note for the call?"""
    now = outline(args, kwargs)
    return any(row.name.startswith(ONCE) and _may_fit(row.made_for, now) for row in _listed(store.get(key)))


def join(store: Store, key: str, payload: bytes) -> None:
    """Put what another machine had; a shelf keeps what lies on it."""
    if payload.startswith(LIST):
        _list(store, key, [*_listed(payload), *_listed(store.get(key))])
    else:
        store.put(key, payload)


def _list(store: Store, key: str, listed: list[Row]) -> None:
    once = list({row.name: row for row in reversed(listed)}.values())[::-1]
    store.put(key, LIST + json.dumps([(row.name, row.made_for, row.like) for row in once[:MOST]]).encode())


def _listed(data: bytes | None) -> list[Row]:
    if data is None or not data.startswith(LIST):
        return []
    return [Row(*row) for row in json.loads(data.removeprefix(LIST))]


def _may_fit(made_for: list, now: list) -> bool:
    """None stands for any size."""
    if len(made_for) != len(now):
        return False
    for made, given in zip(made_for, now, strict=True):
        if isinstance(made, str) or isinstance(given, str):
            if made != given:
                return False
        elif len(made) != len(given) or any(m is not None and m != g for m, g in zip(made, given, strict=True)):
            return False
    return True

"""Compiled programs in files of the user's, and what is on disk as one block of bytes for another machine.

    compiled.json       format, versions and machine, the arguments of `compile`, where the callable is found
    entries/<key>       a compilation each; partial/<key>: backward programs for some of the results
    blobs/<key>         machine code
    model.pt            a module with its weights
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

import torch

from dovetail import targets
from dovetail.assembly import Built, Inference, Parts, Single, Training, plans_of
from dovetail.errors import InvalidArgument
from dovetail.ir.devices import traits
from dovetail.ir.kernel import Kernel
from dovetail.ir.records import dataclass
from dovetail.kept import shelf
from dovetail.kept.keeping import partial_key
from dovetail.kept.objects import by_name, named
from dovetail.kept.packing import unpack
from dovetail.runtime.store import USED, Store, default_folder

FORMAT = 1
HEAD, MODEL = "compiled.json", "model.pt"
ENTRIES, BLOBS = "entries/", "blobs/"
MOST_TANGENTS = 12  # of so many results, backward programs for all parts of them are looked for


@dataclass(frozen=True)
class Read:
    """What a file has: the callable that was compiled, the arguments of `compile`, compilations by key."""

    model: Any
    request: Mapping[str, Any]
    given: Mapping[str, bytes]
    differs: str  # how this machine differs from the one that wrote it; empty if it does not


# ---------------------------------------------------------------- writing


def write(path: Any, model: Any, request: Mapping[str, Any], entries: Any, weights: bool) -> None:
    """Raises InvalidArgument for a callable without compilations that could be kept."""
    if not entries:
        raise InvalidArgument("save: nothing has been compiled yet; call it once with arguments like those to come")
    store, kept = Store(default_folder()), {}
    for entry in entries:
        data = store.get(entry.kept) if entry.kept else None
        if data is None:
            why = entry.unkept if not entry.kept else "it is no longer on disk"
            raise InvalidArgument(f"save: a compilation cannot be used by other processes: {why}")
        kept[entry.kept] = data
    blobs: dict[str, bytes] = {}
    devices: tuple[str, ...] = ()
    for name, data in list(kept.items()):
        for program in list(_programs(name, data, store, kept)):
            kernels = _kernels(program)
            blobs |= targets.blobs(kernels, store)
            devices = devices if all(traits(k.device).host for k in kernels) else shelf.devices()
    how, extra = _model(model, weights)
    head = {"format": FORMAT, "machine": shelf.machine(devices), "request": dict(request), "model": how}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(HEAD, json.dumps(head, indent=1))
        for folder, files in ((ENTRIES, kept), (BLOBS, blobs), ("", extra)):
            for name, data in files.items():
                archive.writestr(f"{folder}{name}", data)


def _programs(name: str, data: bytes, store: Store, kept: dict[str, bytes]) -> Iterator[Built]:
    """Of a compilation, with backward programs for some results, which join `kept`."""
    for k, plan in enumerate(plans_of(unpack(data)["plan"])):
        if isinstance(plan, Inference):
            yield plan.program
        if isinstance(plan, Training):
            yield from (plan.forward, plan.backward)
            for there in range(1, 1 << min(len(plan.joint.tangents), MOST_TANGENTS)):
                key = partial_key(name, k, there)
                found = store.get(key)
                if found is not None:
                    kept[key] = found
                    yield unpack(found)[0]


def _kernels(program: Built) -> list[Kernel]:
    singles = program.parts if isinstance(program, Parts) else (program,)
    return [k for single in singles if isinstance(single, Single) for k in single.host.kernels]


def _model(model: Any, weights: bool) -> tuple[dict[str, Any], dict[str, bytes]]:
    """How `load` finds what was compiled, and files that it needs for that."""
    data = io.BytesIO()
    if isinstance(model, torch.nn.Module) and weights:
        torch.save(model, data)
        return {"in": MODEL}, {MODEL: data.getvalue()}
    way = by_name(model) if isinstance(model, FunctionType) else None
    return {"named": way.steps if way is not None else None}, {}


# ---------------------------------------------------------------- reading


def read(path: Any, model: Any = None, map_location: Any = None) -> Read:
    """Raises InvalidArgument for what is no such file, and where `model` is needed and not given."""
    try:
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        head = json.loads(files[HEAD])
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise InvalidArgument(f"load: {path} is no compiled program, or is damaged: {error}") from error
    if head.get("format") != FORMAT:
        raise InvalidArgument(f"load: {path} has the format {head.get('format')}, and this version reads {FORMAT}")
    model = _found(files, head["model"], path, map_location) if model is None else model
    given = {name.removeprefix(ENTRIES): data for name, data in files.items() if name.startswith(ENTRIES)}
    differs = _difference(head["machine"], shelf.machine(_devices(head)))
    store = Store(default_folder())
    if not differs:
        for name, data in files.items():
            if name.startswith(BLOBS):
                store.put(name.removeprefix(BLOBS), data)
    return Read(model, head["request"], {} if differs else given, differs)


def _found(files: Mapping[str, bytes], how: Mapping[str, Any], path: Any, map_location: Any) -> Any:
    if how.get("in") == MODEL:
        return torch.load(io.BytesIO(files[MODEL]), map_location=map_location, weights_only=False)
    found = None if how["named"] is None else named(how["named"])
    if found is None:
        where = f"{'.'.join(how['named'])} is not there" if how["named"] else "the file does not hold it"
        raise InvalidArgument(f"load: {where}; give what was compiled: dovetail.load(path, model)")
    return found


def _devices(head: Mapping[str, Any]) -> tuple[str, ...]:
    """Those here, if the file is for such."""
    if not json.loads(head["machine"])["the devices"]:
        return ()
    if torch.cuda.is_available():
        torch.cuda.init()
    return shelf.devices()


def _difference(before: str, now: str) -> str:
    if before == now:
        return ""
    parts = zip(json.loads(before).items(), json.loads(now).values(), strict=False)
    found = [f"{name} is {new}, not {old}" for (name, old), new in parts if old != new]
    return "; ".join(found) or "versions are others"


# ---------------------------------------------------------------- all that is on disk


@dataclass(frozen=True)
class CacheInfo:
    """What `save_cache_artifacts` has put together."""

    files: int
    size: int  # bytes


def artifacts() -> tuple[bytes, CacheInfo] | None:
    """All that this process has taken from the folder or put there; None if that is nothing."""
    store, data = Store(default_folder()), io.BytesIO()
    found = {key: payload for key in sorted(USED) if (payload := store.get(key)) is not None}
    with zipfile.ZipFile(data, "w") as archive:
        for key, payload in found.items():
            archive.writestr(key, payload)
    made = data.getvalue()
    return (made, CacheInfo(len(found), len(made))) if found else None


def put_back(data: bytes) -> CacheInfo:
    """Raises InvalidArgument for other bytes, and where there is no folder to put them into."""
    folder = default_folder()
    if folder is None:
        raise InvalidArgument("load_cache_artifacts: there is no folder for them; DOVETAIL_CACHE_DIR names one")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, TypeError) as error:
        raise InvalidArgument(f"load_cache_artifacts: not what save_cache_artifacts gave: {error}") from error
    store = Store(folder)
    for key, payload in found.items():
        if len(key) != KEY or not key.isalnum():
            raise InvalidArgument(f"load_cache_artifacts: {key!r} is no key of the cache")
        shelf.join(store, key, payload)
    return CacheInfo(len(found), len(data))


KEY = 64  # letters

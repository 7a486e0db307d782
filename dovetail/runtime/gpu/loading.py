"""Kernel texts to callables for one device; each distinct text is compiled once in a process, and kept on disk.

Compiling needs no GPU, no host C compiler and no PATH: ptxas comes with Triton.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import itertools
import operator
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch

from dovetail.errors import InternalError
from dovetail.ir.kernel import Kernel
from dovetail.ir.launch import NARROW
from dovetail.runtime.gpu import device_scalars, driver
from dovetail.runtime.gpu.ahead import AHEAD
from dovetail.runtime.gpu.assembler import Binary, Task, assemble
from dovetail.runtime.gpu.workers import WORKERS
from dovetail.runtime.store import Store, default_folder

_loaded: dict[tuple[str, bool, int], Callable[..., None]] = {}  # by symbol, whether there is a wide one, and device
_lock = threading.RLock()


@cache
def available(device: torch.device) -> str:
    """Why kernels cannot be compiled for the device; empty where they can."""
    if torch.version.cuda is None or not torch.cuda.is_available():
        return "this PyTorch sees no CUDA device"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "kernels are made for compute capability 8.0 and newer"
    try:
        identity(0)
        driver.library()
    except (ImportError, OSError) as error:
        return f"Triton and CUDA's driver are needed: {error}"
    return ""


def begin(kernels: Iterable[Kernel], device: torch.device) -> None:
    """Let machine code that `load` will be asked for be made meanwhile."""
    if available(device):
        return
    index = _index(device)
    missing = [k for k in kernels if (k.symbol, k.wide is not None, index) not in _loaded]
    _begin(missing, capability_of(index), Store(default_folder()))


def give_up(kernels: Iterable[Kernel], device: torch.device) -> None:
    """Do not compile those of them that `begin` was told of and nothing is done for yet."""
    if not available(device):
        _give_up(kernels, capability_of(_index(device)), Store(default_folder()))


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def load(
    kernels: Iterable[Kernel], device: torch.device, store: Store | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, Callable[..., None]]:
    """A callable for each kernel's symbol: `f(*addresses, *sizes)`, the last size the number of programs.

    `meanwhile` is called while kernels are compiled, if any are. Raises InternalError when Triton rejects a text.
    """
    index = _index(device)
    store = store or Store(default_folder())
    wanted = {(k.symbol, k.wide is not None, index): k for k in kernels}
    with _lock, torch.cuda.device(index):
        missing = {key: k for key, k in wanted.items() if key not in _loaded}
        capability = capability_of(index)
        made = _binaries(list(missing.values()), capability, store, meanwhile)
        for (key, kernel), binary in zip(missing.items(), made, strict=True):
            _loaded[key] = _callable(kernel, binary, index, capability)
        return {key[0]: _loaded[key] for key in wanted}


def compiled(kernel: Kernel, device: torch.device) -> None:
    """Machine code of the kernel for the device is on disk afterwards."""
    _binaries([kernel], capability_of(device), Store(default_folder()))


def capability_of(device: torch.device | int) -> int:
    """The device's compute capability (90: Hopper)."""
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def blobs(kernels: Iterable[Kernel], device: torch.device, store: Store) -> dict[str, bytes]:
    """What is on disk of the kernels' machine code for the device, by key."""
    keys = [_key(k, capability_of(device), aligned) for k in kernels for aligned in (True, False)]
    return {key: data for key in keys if (data := store.get(key)) is not None}


def _binaries(
    kernels: list[Kernel], capability: int, store: Store, meanwhile: Callable[[], None] = lambda: None,
    aligned: bool = True,
) -> list[Binary]:  # fmt: skip
    """From disk, or compiled beside one another."""
    keys = [_key(k, capability, aligned) for k in kernels]
    found = [store.get(key) for key in keys]
    todo = [k for k, data in enumerate(found) if data is None]
    todo.sort(key=lambda k: _patience(kernels[k]))
    making = {
        k: AHEAD.take((store.folder, keys[k]), _work(kernels[k], keys[k], capability, store, aligned)) for k in todo
    }
    try:
        if making:
            meanwhile()
        for k, future in making.items():
            found[k] = future.result()
    finally:
        for future in making.values():
            future.cancel()
    return [Binary.of_bytes(data) for data in found if data is not None]


def _begin(kernels: Iterable[Kernel], capability: int, store: Store) -> None:
    """Unless they are on disk."""
    for kernel in sorted(kernels, key=_patience):
        key = _key(kernel, capability, True)
        if not store.has(key):
            AHEAD.begin((store.folder, key), _work(kernel, key, capability, store, True))


def _give_up(kernels: Iterable[Kernel], capability: int, store: Store) -> None:
    for kernel in kernels:
        AHEAD.give_up((store.folder, _key(kernel, capability, True)))


def _patience(kernel: Kernel) -> int:
    """The smallest begins first: it takes longest."""
    return -len(kernel.text)


def _work(kernel: Kernel, key: str, capability: int, store: Store, aligned: bool) -> Callable[[], bytes]:
    """What makes machine code of the kernel and puts it on disk."""

    def make() -> bytes:
        made = to_binary(kernel, capability, aligned).to_bytes()
        store.put(key, made)
        return made

    return make


def _key(kernel: Kernel, capability: int, aligned: bool) -> str:
    text = f"gpu {identity(capability)} {aligned} {kernel.launch}\n{kernel.text}"
    return hashlib.sha256(text.encode()).hexdigest()


def _callable(kernel: Kernel, binary: Binary, index: int, capability: int) -> Callable[..., None]:
    """Assumes buffers at multiples of 16 bytes, and has another version for a call where one is not."""
    assert kernel.launch is not None
    if kernel.many:
        return _many(kernel, binary, index, capability)
    if kernel.wide is not None:
        return _either(kernel, binary, index, capability)
    arguments, count = kernel.launch.arguments, len(kernel.pointers)
    fast = driver.launcher(binary, kernel.symbol, arguments, index)
    slow: list[Callable[..., None]] = []

    def call(*args: Any) -> None:
        together = 0
        for address in args[:count]:
            together |= address
        if not together & 15:
            fast(*args)
            return
        if not slow:
            (plain,) = _binaries([kernel], capability, Store(default_folder()), aligned=False)
            slow.append(driver.launcher(plain, kernel.symbol, arguments, index))
        slow[0](*args)

    return call


def _either(kernel: Kernel, binary: Binary, index: int, capability: int) -> Callable[..., None]:
    """The version for 32 bits where they hold every index of the call, or the wide one."""
    wide, short = kernel.wide, _callable(replace(kernel, wide=None), binary, index, capability)
    assert wide is not None
    others: list[Callable[..., None]] = []

    def call(*args: Any) -> None:
        *given, reach, programs = args
        if reach < NARROW:
            short(*given, programs)
            return
        if not others:
            (made,) = _binaries([wide], capability, Store(default_folder()))
            others.append(_callable(wide, made, index, capability))
        others[0](*given, programs)

    return call


def _many(kernel: Kernel, binary: Binary, index: int, capability: int) -> Callable[..., None]:
    """Takes the arguments of each group in turn."""
    assert kernel.launch is not None
    arguments, device = kernel.launch.arguments, torch.device("cuda", index)
    width, pointers = len(kernel.pointers) + len(kernel.sizes), len(kernel.pointers)
    versions = {True: driver.launcher(binary, kernel.symbol, arguments, index)}

    def call(*args: Any) -> None:
        groups = len(args) // width
        starts = list(itertools.accumulate(args[width - 1 :: width], initial=0))
        together = functools.reduce(operator.or_, (a for k in range(pointers) for a in args[k::width]), 0)
        aligned = not together & 15
        if aligned not in versions:
            (plain,) = _binaries([kernel], capability, Store(default_folder()), aligned=False)
            versions[aligned] = driver.launcher(plain, kernel.symbol, arguments, index)
        table = device_scalars.table(device, (*starts, *args))
        versions[aligned](table.data_ptr(), groups, starts[-1])

    return call


# ---------------------------------------------------------------- to machine code

#: What a launch of many says of the addresses that it reads.
_ALIGNED = re.compile(r"tl\.multiple_of\((p\d+), 16\)")


def identity(capability: int) -> str:
    """What machine code depends on besides a kernel's text. Raises ImportError where there is no Triton."""
    return f"triton {_version()} sm_{capability}"


@cache
def _version() -> str:
    """Triton's, by what its folder says that is installed there: importing it takes 0.2 s, which a process that finds
    all of its kernels on disk need not spend."""
    found = importlib.util.find_spec("triton")
    if found is not None and found.origin is not None:
        for distribution in distributions(name="triton", path=[str(Path(found.origin).parents[1])]):
            return distribution.version
    return str(importlib.import_module("triton").__version__)


def to_binary(kernel: Kernel, capability: int, aligned: bool = True) -> Binary:
    """The kernel for GPUs of compute capability `capability` (90: Hopper).

    `aligned`: every buffer will begin at a multiple of 16 bytes. Raises InternalError where Triton rejects the text.
    """
    task = _task(kernel, capability, aligned)
    made = WORKERS.compiled(task)
    if made is not None:
        return made
    try:
        return assemble(task)
    except Exception as error:
        raise InternalError("codegen", f"Triton rejects {kernel.symbol}: {error}") from error


def _task(kernel: Kernel, capability: int, aligned: bool) -> Task:
    launch = kernel.launch
    assert launch is not None
    text = kernel.text if aligned else _ALIGNED.sub(r"\1", kernel.text)
    kinds = [kind.partition(":") for kind in launch.arguments]
    multiples = [k for k, (kind, _, multiple) in enumerate(kinds) if multiple or kind.startswith("*") and aligned]
    options = {
        "num_warps": launch.warps, "enable_fp_fusion": launch.fused, "enable_reflect_ftz": False,
        "debug": launch.checked, "sanitize_overflow": False,
    }  # fmt: skip
    options |= {"num_stages": launch.stages} if launch.stages else {}
    return Task(kernel.symbol, text, [kind for kind, _, _ in kinds], multiples, options, capability)

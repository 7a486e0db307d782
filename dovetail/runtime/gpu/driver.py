"""Modules, functions and launches through CUDA's driver interface."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from dovetail.errors import InternalError
from dovetail.runtime.gpu.assembler import Binary

_FORMATS = {"i32": "i", "i64": "q", "fp64": "d"}
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEFAULT_SHARED = 48 << 10  # bytes that a launch gets without asking
_current_stream = torch._C._cuda_getCurrentRawStream if hasattr(torch._C, "_cuda_getCurrentRawStream") else None


@cache
def library() -> Any:
    """The driver; calls keep Python's lock, so that nobody changes a launch's arguments meanwhile.

    Raises OSError where there is none.
    """
    found = ctypes.PyDLL("libcuda.so.1")
    found.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    return found


def _call(name: str, *args: Any) -> None:
    status = getattr(library(), name)(*args)
    if status:
        text = ctypes.c_char_p()
        library().cuGetErrorString(status, ctypes.byref(text))
        raise InternalError("runtime", f"{name}: {text.value.decode() if text.value else status}")


_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


@cache
def _context(device: int) -> ctypes.c_void_p:
    """The one that PyTorch uses."""
    found = ctypes.c_void_p()
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(found), device)
    return found


@contextmanager
def _current(device: int) -> Iterator[None]:
    """Under the device's context: a thread that has called nothing of CUDA's yet has none, or may have another's."""
    _call("cuCtxPushCurrent_v2", _context(device))
    try:
        yield
    finally:
        _call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


def function(binary: Binary, symbol: str, device: int) -> ctypes.c_void_p:
    """The kernel on the device. Its module is never unloaded: CUDA graphs may refer to it."""
    module, found = ctypes.c_void_p(), ctypes.c_void_p()
    with _current(device):
        _call("cuModuleLoadData", ctypes.byref(module), binary.code)
        _call("cuModuleGetFunction", ctypes.byref(found), module, symbol.encode())
        if binary.shared > _DEFAULT_SHARED:
            _call("cuFuncSetAttribute", found, _MAX_DYNAMIC_SHARED, binary.shared)
    return found


def launcher(binary: Binary, symbol: str, arguments: tuple[str, ...], device: int) -> Callable[..., None]:
    """`call(*arguments, programs)` starts the kernel on the device's current stream."""
    kernel = function(binary, symbol, device)
    # The two last ones are pointers to scratch memory that Triton's own tools may ask for.
    form = struct.Struct("@" + "".join("P" if a[0] == "*" else _FORMATS[a.partition(":")[0]] for a in arguments) + "PP")
    memory = ctypes.create_string_buffer(form.size)
    base, offsets = ctypes.addressof(memory), _offsets(form.format)
    places = (ctypes.c_void_p * len(offsets))(*(base + o for o in offsets))
    pack, launch, threads, shared = form.pack_into, library().cuLaunchKernel, 32 * binary.warps, binary.shared

    def call(*args: Any) -> None:
        programs = args[-1]
        if programs:
            pack(memory, 0, *args[:-1], 0, 0)
            stream = _current_stream(device)  # type: ignore[misc]
            status = launch(kernel, programs, 1, 1, threads, 1, 1, shared, stream, places, None)
            if status == _NO_CONTEXT:  # a thread that has called nothing of CUDA's yet, as the engine's may be
                _call("cuCtxSetCurrent", _context(device))
                status = launch(kernel, programs, 1, 1, threads, 1, 1, shared, stream, places, None)
            if status:
                raise InternalError("runtime", f"the launch of {symbol} failed with status {status}")

    return call


def _offsets(form: str) -> list[int]:
    """Where each field of a native structure lies."""
    return [struct.calcsize(form[: k + 1]) - struct.calcsize(form[0] + form[k]) for k in range(1, len(form))]

"""Kernel texts to callables; each distinct text is compiled once in a process."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from typing import Any

import llvmlite.binding as llvm

from dovetail.errors import InternalError
from dovetail.ir.kernel import Kernel
from dovetail.ir.launch import LAUNCH
from dovetail.runtime.cpu import calls, machine, openmp, team
from dovetail.runtime.cpu.store import Store, default_folder

_loaded: dict[str, Callable[..., Any]] = {}
_engines: list[llvm.ExecutionEngine] = []
_lock = threading.Lock()


def load(kernels: Iterable[Kernel], store: Store | None = None) -> dict[str, Callable[..., int]]:
    """A callable for each kernel's symbol: `status = f(*addresses, *sizes)`, integers all.

    Kernels seen before in this process are not compiled again, those in the store are only
    linked. Raises InternalError when LLVM rejects a text.
    """
    wanted = {k.symbol: k for k in kernels}
    with _lock:
        missing = [k for symbol, k in wanted.items() if symbol not in _loaded]
        if missing:
            _link(missing, store or Store(default_folder()))
        return {symbol: _loaded[symbol] for symbol in wanted}


def _link(kernels: list[Kernel], store: Store) -> None:
    """One execution engine for all of them."""
    objects = [_object(k.symbol, k.text + calls.wrapper_text(k), store) for k in kernels]
    _connect(store)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine.machine())
    for code in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    for kernel in kernels:
        name = f"{kernel.symbol}_py"
        _loaded[kernel.symbol] = calls.function(kernel.symbol, engine.get_function_address(name))


def _connect(store: Store) -> None:
    """Once a process: the functions that kernels call."""
    if _engines:
        return
    text = team.TEXT + (openmp.DECLARATIONS if openmp.connect() else openmp.SERIAL)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine.machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(_object(LAUNCH, text, store)))
    engine.finalize_object()
    llvm.add_symbol(LAUNCH, engine.get_function_address(LAUNCH))
    _engines.append(engine)


def _object(name: str, text: str, store: Store) -> bytes:
    key = hashlib.sha256(f"{machine.identity()}\n{text}".encode()).hexdigest()
    code = store.get(key)
    if code is None:
        try:
            code = machine.to_object(text)
        except RuntimeError as error:
            raise InternalError("codegen", f"LLVM rejects {name}: {error}") from error
        store.put(key, code)
    return code

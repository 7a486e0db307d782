"""Kernel texts to callables; each distinct text is compiled once in a process.

The texts that are missing are compiled together into one object, those that need another launcher into
another: an object that is found on disk is linked whole. There it lies under a key of its own, and the
key of each text it contains leads to it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import llvmlite.binding as llvm

from dovetail.errors import InternalError
from dovetail.ir.kernel import Kernel
from dovetail.ir.launch import LAUNCH, LAUNCH_MANY
from dovetail.runtime.cpu import calls, machine, openmp, team
from dovetail.runtime.cpu.store import Store, default_folder

#: Builtin functions, kernels and LLVM's own symbol table point into engines' memory: none is ever freed.
_engines: list[llvm.ExecutionEngine] = []


class Loader:
    """What one process has loaded: addresses by symbol, callables by kernel symbol."""

    def __init__(self) -> None:
        self.addresses: dict[str, int] = {}
        self.functions: dict[str, Callable[..., Any]] = {}
        self.engines: dict[str, llvm.ExecutionEngine] = {}  # by object key
        self.lock = threading.Lock()

    def load(self, kernels: Iterable[Kernel], store: Store) -> dict[str, Callable[..., int]]:
        wanted = {k.symbol: k for k in kernels}
        with self.lock:
            missing = [k for symbol, k in wanted.items() if symbol not in self.functions]
            for many, launcher in ((False, LAUNCH), (True, LAUNCH_MANY)):
                texts = {k.symbol: k.text for k in missing if k.many is many}
                if texts:
                    self.connect(launcher, store)
                self.link({name: text for name, text in texts.items() if name not in self.addresses}, store)
            arguments = {k.symbol: _arguments(k) for k in missing}
            callers = {calls.caller(*a): calls.caller_text(*a) for a in sorted(set(arguments.values()))}
            callers = {name: text for name, text in callers.items() if name not in self.addresses}
            self.link(callers, store, machine.QUICK)
            for k in missing:
                through = self.addresses[calls.caller(*arguments[k.symbol])]
                self.functions[k.symbol] = calls.function(k.symbol, through, self.addresses[k.symbol])
            return {symbol: self.functions[symbol] for symbol in wanted}

    def connect(self, launcher: str, store: Store) -> None:
        """Once: a launcher that kernels call, on the OpenMP runtime or without one."""
        if launcher not in self.addresses:
            text = {LAUNCH: team.TEXT, LAUNCH_MANY: team.MANY}[launcher]
            rest = openmp.DECLARATIONS if openmp.connect() else openmp.SERIAL
            self.link({launcher: text + rest}, store)
            llvm.add_symbol(launcher, self.addresses[launcher])

    def link(self, texts: Mapping[str, str], store: Store, speed: int = machine.FAST) -> None:
        """Make `addresses` know the function that each text defines under its name."""
        keys = {name: _key(text) for name, text in texts.items()}
        todo: dict[str, str] = {}
        for name, text in texts.items():
            reference = store.get(keys[name])
            code = None if reference is None else self.find(reference.decode(), store)
            if code is None:
                todo[name] = text
            else:
                self.addresses[name] = code.get_function_address(name)
        if not todo:
            return
        code = _compile(todo, speed)
        key = hashlib.sha256(code).hexdigest()
        engine = self.engine(key, code)
        for name in todo:
            self.addresses[name] = engine.get_function_address(name)
        store.put(key, code)
        for name in todo:
            store.put(keys[name], key.encode())

    def find(self, key: str, store: Store) -> llvm.ExecutionEngine | None:
        """The engine of an object, if the object is at hand."""
        if key in self.engines:
            return self.engines[key]
        code = store.get(key)
        return None if code is None else self.engine(key, code)

    def engine(self, key: str, code: bytes) -> llvm.ExecutionEngine:
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine.new_machine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        self.engines[key] = engine
        _engines.append(engine)
        return engine


def _key(text: str) -> str:
    return hashlib.sha256(f"reference 2 {machine.identity()}\n{text}".encode()).hexdigest()


def _arguments(kernel: Kernel) -> tuple[int, tuple[int, ...], bool]:
    """What tells kernels' callers apart: how many arguments there are, and which of them are floats."""
    pointers = len(kernel.pointers)
    return pointers + len(kernel.sizes), tuple(pointers + k for k in kernel.floats), kernel.many


def _compile(texts: Mapping[str, str], speed: int) -> bytes:
    try:
        return machine.to_object(list(texts.values()), speed)
    except RuntimeError as error:
        raise InternalError("codegen", f"LLVM rejects one of {', '.join(texts)}: {error}") from error


_process = Loader()


def load(kernels: Iterable[Kernel], store: Store | None = None) -> dict[str, Callable[..., int]]:
    """A callable for each kernel's symbol: `status = f(*addresses, *sizes)`, integers all.

    Kernels seen before in this process are not compiled again, those in the store are only
    linked. Raises InternalError when LLVM rejects a text.
    """
    return _process.load(kernels, store or Store(default_folder()))

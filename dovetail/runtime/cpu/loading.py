"""Kernel texts to callables; each distinct text is compiled once in a process.

The texts that are missing are compiled together into one object. On disk an object lies under a
key of its own, and the key of each text it contains leads to it.
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
            self.connect(store)
            missing = [k for symbol, k in wanted.items() if symbol not in self.functions]
            arities = {(len(k.pointers), len(k.sizes), k.floats, k.many) for k in missing}
            texts = {k.symbol: k.text for k in missing}
            texts.update({calls.caller(*a): calls.caller_text(*a) for a in sorted(arities)})
            self.link({name: text for name, text in texts.items() if name not in self.addresses}, store)
            for k in missing:
                through = self.addresses[calls.caller(len(k.pointers), len(k.sizes), k.floats, k.many)]
                self.functions[k.symbol] = calls.function(k.symbol, through, self.addresses[k.symbol])
            return {symbol: self.functions[symbol] for symbol in wanted}

    def connect(self, store: Store) -> None:
        """Once: the launchers that kernels call, on the OpenMP runtime or without one."""
        if LAUNCH not in self.addresses:
            rest = openmp.DECLARATIONS if openmp.connect() else openmp.SERIAL
            texts = {LAUNCH: team.TEXT + rest, LAUNCH_MANY: team.MANY + rest}
            for name, text in texts.items():
                self.link({name: text}, store)
                llvm.add_symbol(name, self.addresses[name])

    def link(self, texts: Mapping[str, str], store: Store) -> None:
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
        code = _compile(todo)
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
    return hashlib.sha256(f"reference {machine.identity()}\n{text}".encode()).hexdigest()


def _compile(texts: Mapping[str, str]) -> bytes:
    try:
        return machine.to_object(list(texts.values()))
    except RuntimeError as error:
        raise InternalError("codegen", f"LLVM rejects one of {', '.join(texts)}: {error}") from error


_process = Loader()


def load(kernels: Iterable[Kernel], store: Store | None = None) -> dict[str, Callable[..., int]]:
    """A callable for each kernel's symbol: `status = f(*addresses, *sizes)`, integers all.

    Kernels seen before in this process are not compiled again, those in the store are only
    linked. Raises InternalError when LLVM rejects a text.
    """
    return _process.load(kernels, store or Store(default_folder()))

"""Kernel texts to callables; each distinct text is compiled once in a process.

The texts that are missing are compiled together into one object, those that need another launcher into
another: an object that is found on disk is linked whole. There it lies under a key of its own, and the
key of each text it contains leads to it.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
import torch

from dovetail.errors import InternalError
from dovetail.ir.kernel import Kernel
from dovetail.ir.launch import LAUNCH, LAUNCH_MANY
from dovetail.ir.process import room_to_compile
from dovetail.ir.stores import Store
from dovetail.runtime.cpu import ahead, calls, machine, openmp, team
from dovetail.runtime.store import Store as Disk
from dovetail.runtime.store import default_folder

#: Engines of launchers and callers: kernels and LLVM's own symbol table point there, so none is ever freed.
_helping: list[llvm.ExecutionEngine] = []
#: Kernels that are kept for whoever compiles the same again, though no program has them any more.
MOST = 1000
#: Objects that are made ahead, at most: those of a program that is not loaded after all are never asked for.
MOST_AHEAD = 64


class Loader:
    """What one process has loaded. A kernel's function keeps its engine alive, and is kept by programs.

    `helpers` are launchers and callers, addresses by name.
    """

    def __init__(self) -> None:
        self.helpers: dict[str, int] = {}
        self.latest = Store(MOST)
        self.functions: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()  # by kernel's symbol
        self.engines: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()  # by object's key
        self.ahead: deque[ahead.Object] = deque(maxlen=MOST_AHEAD)
        self.lock = threading.RLock()

    def begin(self, kernels: Iterable[Kernel], disk: Disk, more: bool = False) -> None:
        """Let what `load` will need be made meanwhile: for no kernels, what most need. `more` will follow, and what
        calls these kernels with those."""
        with self.lock:
            missing = [k for k in {k.symbol: k for k in kernels}.values() if k.symbol not in self.functions]
            objects = [ahead.Object(self.unmade(texts, disk), speed) for texts, speed in _needed(missing, more)]
            objects = [each for each in objects if each.texts]
            texts = [text for each in objects for text in each.texts.values()]
            if texts and _room(texts, on_a_thread=True) and ahead.begin(objects):
                self.ahead += objects

    def unmade(self, texts: Mapping[str, str], disk: Disk) -> dict[str, str]:
        """Those that are not at hand, on disk or under way."""
        known = self.helpers.keys() | {name for each in self.ahead for name in each.texts}
        left = {name: text for name, text in texts.items() if name not in known}
        return {name: text for name, text in left.items() if disk.get(_key(text)) is None}

    def load(self, kernels: Iterable[Kernel], disk: Disk) -> dict[str, Callable[..., int]]:
        wanted = {k.symbol: k for k in kernels}
        with self.lock:
            loaded = {symbol: self.functions.get(symbol) for symbol in wanted}
            missing = [k for symbol, k in wanted.items() if loaded[symbol] is None]
            if missing and not _room(k.text for k in missing):
                raise MemoryError("too little of the address space is left to compile kernels in")
            arguments = {k.symbol: _arguments(k) for k in missing}
            self.help(_callers(arguments.values()), disk)
            for many, launcher in ((False, LAUNCH), (True, LAUNCH_MANY)):
                texts = {k.symbol: k.text for k in missing if k.many is many}
                if texts:
                    self.connect(launcher, disk)
                for symbol, engine in self.link(texts, disk).items():
                    through = self.helpers[calls.caller(*arguments[symbol])]
                    made = calls.function(symbol, through, engine.get_function_address(symbol), engine)
                    loaded[symbol] = self.functions[symbol] = made
            return {symbol: self.latest.keep(symbol, made) for symbol, made in loaded.items()}

    def connect(self, launcher: str, disk: Disk) -> None:
        """Once: a launcher that kernels call, on the OpenMP runtime or without one."""
        if launcher not in self.helpers:
            self.help(_launcher(launcher), disk, machine.FAST)
            llvm.add_symbol(launcher, self.helpers[launcher])

    def help(self, texts: Mapping[str, str], disk: Disk, speed: int = machine.QUICK) -> None:
        """Make `helpers` know the function that each text defines under its name."""
        texts = {name: text for name, text in texts.items() if name not in self.helpers}
        for name, engine in self.link(texts, disk, speed).items():
            self.helpers[name] = engine.get_function_address(name)
            _helping.append(engine)

    def link(
        self, texts: Mapping[str, str], disk: Disk, speed: int = machine.FAST
    ) -> dict[str, llvm.ExecutionEngine]:
        """The engine that has each text's function under its name."""
        keys = {name: _key(text) for name, text in texts.items()}
        found: dict[str, llvm.ExecutionEngine] = {}
        todo: dict[str, str] = {}
        for name, text in texts.items():
            reference = disk.get(keys[name])
            engine = None if reference is None else self.find(reference.decode(), disk)
            if engine is not None and engine.get_function_address(name):
                found[name] = engine
            else:  # also where an object is not the one that was put there
                todo[name] = text
        for made, code in self.made(todo, speed):
            key = hashlib.sha256(code).hexdigest()
            found |= dict.fromkeys(made, self.engine(key, code))
            disk.put(key, code)
            for text in made.values():
                disk.put(_key(text), key.encode())
        return {name: found[name] for name in texts}

    def made(self, texts: Mapping[str, str], speed: int) -> Iterator[tuple[Mapping[str, str], bytes]]:
        """Objects that have these texts among theirs: what was made ahead, and one that is made now."""
        left = dict(texts)
        for each in [each for each in self.ahead if each.texts.items() & texts.items()]:
            code = each.code()
            self.ahead.remove(each)
            if code:
                left = {name: text for name, text in left.items() if name not in each.texts}
                yield each.texts, code
        if left:
            yield left, _compile(left, speed)

    def find(self, key: str, disk: Disk) -> llvm.ExecutionEngine | None:
        """The engine of an object, if the object is at hand."""
        engine = self.engines.get(key)
        if engine is not None:
            return engine
        code = disk.get(key)
        return None if code is None else self.engine(key, code)

    def engine(self, key: str, code: bytes) -> llvm.ExecutionEngine:
        missing = machine.missing(code)
        if missing:
            raise InternalError("codegen", f"machine code calls {', '.join(missing)}, which this process does not have")
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine.new_machine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        self.engines[key] = engine
        return engine


def _key(text: str) -> str:
    return hashlib.sha256(f"reference 2 {machine.identity()}\n{text}".encode()).hexdigest()


def _arguments(kernel: Kernel) -> tuple[int, tuple[int, ...], bool]:
    """What tells kernels' callers apart: how many arguments there are, and which of them are floats."""
    pointers = len(kernel.pointers)
    return pointers + len(kernel.sizes), tuple(pointers + k for k in kernel.floats), kernel.many


def _callers(arguments: Iterable[tuple[int, tuple[int, ...], bool]]) -> dict[str, str]:
    return {calls.caller(*each): calls.caller_text(*each) for each in sorted(set(arguments))}


def _launcher(name: str) -> dict[str, str]:
    text = {LAUNCH: team.TEXT, LAUNCH_MANY: team.MANY}[name]
    return {name: text + (openmp.DECLARATIONS if openmp.connect() else openmp.SERIAL)}


def _needed(kernels: Sequence[Kernel], more: bool) -> Iterator[tuple[dict[str, str], int]]:
    """Texts of objects that `load` asks for, and how they are made."""
    if not kernels:
        yield _launcher(LAUNCH), machine.FAST
    if not more:
        yield _callers(map(_arguments, kernels)), machine.QUICK
    for many, launcher in ((False, LAUNCH), (True, LAUNCH_MANY)):
        texts = {k.symbol: k.text for k in kernels if k.many is many}
        if texts:
            yield _launcher(launcher), machine.FAST
            yield texts, machine.FAST


def _room(texts: Iterable[str], on_a_thread: bool = False) -> bool:
    return room_to_compile(sum(map(len, texts)), on_a_thread)


def _compile(texts: Mapping[str, str], speed: int) -> bytes:
    try:
        return machine.to_object(list(texts.values()), speed)
    except RuntimeError as error:
        raise InternalError("codegen", f"LLVM rejects one of {', '.join(texts)}: {error}") from error


_process = Loader()


def begin(kernels: Iterable[Kernel], more: bool = False) -> None:
    """Let machine code that `load` will be asked for be made meanwhile. `more`: for other kernels as well."""
    _process.begin(kernels, Disk(default_folder()), more)


def blobs(kernels: Iterable[Kernel], device: torch.device, disk: Disk) -> dict[str, bytes]:
    """What is on disk of the kernels' machine code, by key."""
    found = {key: disk.get(key) for key in {_key(kernel.text) for kernel in kernels}}
    found |= {key.decode(): disk.get(key.decode()) for key in {*found.values()} if key is not None}
    return {key: data for key, data in found.items() if data is not None}


def load(kernels: Iterable[Kernel], disk: Disk | None = None) -> dict[str, Callable[..., int]]:
    """A callable for each kernel's symbol: `status = f(*addresses, *sizes)`, integers all.

    Kernels that the process still has are not compiled again, those on disk are only linked. Raises InternalError when
    LLVM rejects a text.
    """
    return _process.load(kernels, disk or Disk(default_folder()))

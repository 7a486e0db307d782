"""Machine code that a thread makes while the one that will load it goes on with Python.

LLVM lets go of Python's lock as long as it makes an object. Nothing depends on the thread: where there is none, or LLVM
rejects a text, whoever wants the code makes it, and meets the error.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.runtime.cpu import machine
from dovetail.runtime.dispatch.reentrancy import BESIDE


class Object:
    """The object code of modules' texts, by name, as `machine.to_object` makes it of them together."""

    def __init__(self, texts: Mapping[str, str], speed: int) -> None:
        self.texts, self.speed = texts, speed
        self.process, self.done, self.made = os.getpid(), threading.Event(), b""

    def code(self) -> bytes:
        """Waits for it; empty where it could not be made. In a forked process the thread is not there."""
        if self.process == os.getpid():
            self.done.wait()
        return self.made


def begin(objects: Sequence[Object]) -> bool:
    """Are they under way? Texts are read here if LLVM is free: on the thread each step waits for Python's lock anew."""
    if threading.stack_size():
        return False  # a program that chose how deep threads may go did not think of LLVM
    try:
        modules = [] if BESIDE.locked() else [_read(each) for each in objects]
        threading.Thread(target=_make, args=(objects, modules)).start()
    except RuntimeError:  # LLVM's, or a program that ends starts no threads
        return False
    return True


def _read(found: Object) -> Any:
    return machine.read(list(found.texts.values()))


def _make(objects: Sequence[Object], modules: list[Any]) -> None:
    try:
        for each in objects:
            with BESIDE, contextlib.suppress(RuntimeError, MemoryError):
                each.made = machine.emit(modules.pop(0) if modules else _read(each), each.speed)
            each.done.set()
    finally:
        for each in objects:
            each.done.set()

"""Modules that only some programs need, loaded when they are."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from typing import Any


def loaded(name: str) -> Any:
    """The module, loaded on a thread of its own: what modules try out then is tried under no mode of the caller's."""
    if name not in sys.modules:

        def load() -> None:
            with contextlib.suppress(Exception):  # who needs the module meets it
                importlib.import_module(name)

        thread = threading.Thread(target=load)
        with contextlib.suppress(RuntimeError):  # a program that ends starts no threads
            thread.start()
            thread.join()
    return importlib.import_module(name)

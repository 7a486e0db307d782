"""What a program asks for and gets otherwise, or not at all, is told once, on the logger `dovetail`."""

from __future__ import annotations

import logging

from dovetail.ir.stores import Store

_TOLD = Store(256)


def note(topic: str, message: str) -> None:
    """Tell it, unless `topic` has been told of. On the standard error, unless the program's handlers say otherwise."""
    if _TOLD.recall(topic) is None:
        _TOLD.keep(topic, True)
        logging.getLogger("dovetail").warning("%s", message)

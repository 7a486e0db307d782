"""The environment variables `DOVETAIL_*`: which there are. What is wrong about one is said, and never stops a program.

    DOVETAIL_RECOMPILE_LIMIT=4 DOVETAIL_LOGS=guards python script.py
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dovetail.errors import InvalidArgument

PREFIX = "DOVETAIL_"
#: Those that are no settings.
OTHERS: dict[str, str] = {
    "LOGS": "Which logs to show; `help` lists them.",
    "LOGS_OUT": "The file that logs are written to.",
    "TRACE": "The folder that everything that is compiled is recorded in; `dovetail report` makes a page of it.",
    "CACHE_DIR": "Where compiled kernels are kept; empty: nowhere.",
}


def said(error: InvalidArgument) -> None:
    """On the standard error, unless the program's handlers of the logger `dovetail` say otherwise."""
    logging.getLogger("dovetail").warning("%s", error)


def tolerated(use: Callable[[], Any], otherwise: Any = None) -> Any:
    """What `use` gives; where it refuses a variable's value, that is said and `otherwise` counts."""
    try:
        return use()
    except InvalidArgument as error:
        said(error)
        return otherwise


def check_names(settings: Iterable[str], environment: Mapping[str, str] = os.environ) -> None:
    """Name the variables that nothing reads, each with one that it may have been meant as."""
    known = [name.upper() for name in (*settings, *OTHERS)]
    given = sorted(name.removeprefix(PREFIX) for name in environment if name.startswith(PREFIX))
    for name in (name for name in given if name not in known):
        meant = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {PREFIX}{meant[0]}?" if meant else f"there are {', '.join(PREFIX + k for k in known)}"
        said(InvalidArgument(f"nothing reads the environment variable {PREFIX}{name}; {hint}"))

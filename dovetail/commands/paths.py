"""Paths as a page shows them: without the folder that all files of the program share, and without a library's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from dovetail.commands.overview import INSTALLED
from dovetail.commands.recorded import RecordedCompilation


class Paths:
    """`root` is the folder that the program's files are in; empty if they share none."""

    def __init__(self, files: Iterable[str]) -> None:
        known = {file for file in files if os.path.isabs(file)}
        installed = {found[0] for file in known if (found := INSTALLED.match(file))}
        own = {os.path.dirname(file) for file in known if not INSTALLED.match(file)}
        shared = os.path.commonpath(own) if own else ""
        self.root = shared if shared != os.path.dirname(shared) else ""
        prefixes = installed | ({self.root + os.sep} if self.root else set())
        longest = sorted(prefixes, key=len, reverse=True)
        self._before = re.compile(r"(?<![^\s(])(?:" + "|".join(map(re.escape, longest)) + ")") if longest else None

    def short(self, text: str) -> str:
        """Without these folders wherever the text names one."""
        return self._before.sub("", text) if self._before else text


def named(compilations: Iterable[RecordedCompilation]) -> Iterator[str]:
    """The files that compilations, their breaks and their kernels are in."""
    for compilation in compilations:
        yield compilation.place.rpartition(":")[0]
        stacks: list[list[dict[str, Any]]] = [found["stack"] for found in compilation.breaks]
        for told, _ in compilation.programs:
            stacks += told["stacks"]
        yield from (place["file"] for stack in stacks for place in stack)

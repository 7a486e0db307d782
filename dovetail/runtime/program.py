"""Turn a host program's text into a callable of the program's inputs."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from dovetail.ir.host import HostProgram
from dovetail.runtime import arena

_numbers = count()


class _NoBlock:
    """Stands in for the arena in programs that need none."""

    address = 0


def load(host: HostProgram, kernels: Mapping[str, Callable[..., int]]) -> Callable[..., tuple[Any, ...]]:
    """`kernels` maps symbols to loaded functions. The text shows up in tracebacks."""
    filename = f"<dovetail host program {next(_numbers)}>"
    linecache.cache[filename] = (len(host.text), None, host.text.splitlines(True), filename)
    namespace: dict[str, Any] = {**host.names, **{k.symbol: kernels[k.symbol] for k in host.kernels}}
    exec(compile(host.text, filename, "exec"), namespace)
    run = namespace["run"]
    size = host.arena_bytes
    if not size:
        block = _NoBlock()
        return lambda *inputs: run(block, *inputs)

    def call(*inputs: Any) -> tuple[Any, ...]:
        block = arena.take(size)
        try:
            return run(block, *inputs)
        finally:
            arena.give(block)

    return call

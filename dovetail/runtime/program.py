"""Turn a host program's text into a callable of the program's inputs."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from dovetail.errors import InternalError
from dovetail.ir.host import HostProgram
from dovetail.runtime import arena

_numbers = count()


def load(host: HostProgram, kernels: Mapping[str, Callable[..., int]]) -> Callable[..., tuple[Any, ...]]:
    """`kernels` maps symbols to loaded functions. The text shows up in tracebacks.

    The first call also checks what library operators return (`expect_layout`).
    """
    filename = f"<dovetail host program {next(_numbers)}>"
    linecache.cache[filename] = (len(host.text), None, host.text.splitlines(True), filename)
    functions = {k.symbol: kernels[k.symbol] for k in host.kernels}
    namespace: dict[str, Any] = {**host.names, **functions, "expect_layout": expect_layout}
    exec(compile(host.text, filename, "exec"), namespace)
    run = namespace["run"]
    first = [namespace["run_first"]] if "run_first" in namespace else []
    size = host.arena_bytes

    def call(*inputs: Any) -> tuple[Any, ...]:
        function = first[0] if first else run
        block = arena.take(size)
        try:
            results = function(block, *inputs)
        finally:
            arena.give(block)
        if first:
            first.clear()
        return results

    if size or first:
        return call
    return functools.partial(run, arena.take(0))


def expect_layout(tensor: Any, sizes: tuple[int, ...], strides: tuple[int, ...], operator: str) -> None:
    """Raise InternalError if a library result is not laid out as the kernels that read it assume."""
    if tensor is None:
        return
    if tuple(tensor.shape) == sizes:
        wrong = [k for k, n in enumerate(sizes) if n > 1 and tensor.stride(k) != strides[k]]
        if not wrong or tensor.numel() == 0:
            return
    raise InternalError(
        "runtime", f"{operator} returned sizes {tuple(tensor.shape)} and strides {tensor.stride()}, "
        f"but {sizes} and {strides} were predicted",
    )

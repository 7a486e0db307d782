"""A graph whose parts are called one after the other, as a callable of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from dovetail.ir.checks import CheckFailed, OtherSizes
from dovetail.ir.host import HostProgram
from dovetail.runtime.call.program import LASTING, LEFT, execute, expect_layout, native

_numbers = count()


def load(
    host: HostProgram, parts: Sequence[Callable[..., Any]], eager: Callable[..., Any] | None
) -> Callable[..., Any]:
    """`eager` runs in its place where a size turns out to be other than what the code relies on; nothing has been
    written to by then."""
    filename = f"<dovetail stages {next(_numbers)}>"
    names = {name: native(value) for name, value in host.names.items()}
    namespace = {**names, "OtherSizes": OtherSizes, "expect_layout": expect_layout, LASTING: host.lasting}
    namespace |= {f"part{k}": part for k, part in enumerate(parts)}
    execute(host.text, filename, namespace, host.code)
    run = namespace["run"]
    if eager is None or eager is LEFT:
        return run

    def call(*inputs: Any) -> Any:
        try:
            return run(*inputs)
        except CheckFailed:
            pass
        return eager(*inputs)

    return call

"""A graph whose parts are called one after the other, as a callable of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from dovetail.ir.checks import OtherSizes
from dovetail.ir.kernel import HostProgram
from dovetail.runtime.call.program import LASTING, execute, expect_layout, native

_numbers = count()


def load(host: HostProgram, parts: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """It raises OtherSizes where a size turns out to be other than what the code relies on, before anything is written
    to."""
    filename = f"<dovetail stages {next(_numbers)}>"
    names = {name: native(value) for name, value in host.names.items()}
    namespace = {**names, "OtherSizes": OtherSizes, "expect_layout": expect_layout, LASTING: host.lasting}
    namespace |= {f"part{k}": part for k, part in enumerate(parts)}
    run: Callable[..., Any] = execute(host.text, filename, namespace, host.code)
    return run

"""Which devices a run takes, and how many processes."""

from __future__ import annotations

from ..session import describe
from . import processes


def machine(tiny: bool, ranks: int) -> tuple[str, int, str]:
    """The kind of device, the number of processes (`ranks`, or one for each device), and a line about the machine."""
    if tiny:
        return "cpu", ranks or 2, describe()
    found = processes.devices()
    if len(found) < 2:
        raise SystemExit(f"this needs two CUDA devices, and PyTorch sees {len(found)}; --tiny runs on the CPU")
    return "cuda", ranks or len(found), f"{found[0]}, {describe()}"

"""Where a run took place, in one line: figures without it mean nothing."""

from __future__ import annotations

import platform
from pathlib import Path

import torch


def describe() -> str:
    """Versions, processor and threads; never a machine's name."""
    return (
        f"torch {torch.__version__}, Python {platform.python_version()}, "
        f"{torch.get_num_threads()} threads, {_processor()}"
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()

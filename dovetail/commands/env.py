"""`dovetail env`: what a bug report needs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator

import click
import torch

from dovetail.config import PREFIX, SETTINGS, config

PACKAGES = ("dovetail", "triton", "llvmlite", "bytecode", "numpy", "transformers")


@click.command
def command() -> None:
    """Show versions, devices and settings."""
    found = list(rows())
    width = max(len(name) for name, _ in found)
    for name, value in found:
        click.echo(f"{name:{width}}  {value}")


def rows() -> Iterator[tuple[str, str]]:
    yield "python", f"{platform.python_version()} {sys.executable}"
    yield "torch", torch.__version__  # which says for which devices it was built
    for package in PACKAGES:
        yield package, _version(package)
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}"
    yield "processor", f"{_processor()}, {os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"
    yield "vectors", torch.backends.cpu.get_cpu_capability()
    for k in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(k)
        yield f"cuda:{k}", f"{found.name}, {found.total_memory / 2**30:.0f} GiB, sm_{found.major}{found.minor}"
    changed = [name for name, setting in SETTINGS.items() if getattr(config, name) != setting.default]
    yield "settings", ", ".join(f"{name}={getattr(config, name)!r}" for name in changed) or "defaults"
    for name in sorted(name for name in os.environ if name.startswith(PREFIX)):
        yield name, os.environ[name]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"

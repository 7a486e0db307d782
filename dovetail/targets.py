"""What makes and runs kernels, by the kind of device.

    device.type  ->  Target      group of the loop IR --generate--> Kernel --load--> callables

A new kind of device needs a row here, and one in `ir/devices.py` if some choices are to be made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch

from dovetail.ir.devices import GPU, HOST, traits
from dovetail.ir.kernel import Kernel
from dovetail.ir.liveness import reads, writes
from dovetail.ir.loops import Group
from dovetail.loading import loaded
from dovetail.options import Options


class Target(Protocol):
    """A kind of device that kernels exist for. Loaded kernels take the addresses of their buffers, then their sizes."""

    def unavailable(self, device: torch.device) -> str:
        """Why kernels cannot be compiled for the device here and now; empty where they can."""

    def generate(self, group: Group, options: Options, many: bool = False) -> Kernel:
        """The kernel of a group, or of many like it."""

    def begin(self, kernels: Iterable[Kernel], device: torch.device, more: bool) -> None:
        """Let what `load` will need be made meanwhile; for no kernels, what most need. `more`: others will follow."""

    def give_up(self, kernels: Iterable[Kernel], device: torch.device) -> None:
        """None of these will be loaded, of which `begin` may have been told."""

    def load(
        self, kernels: Iterable[Kernel], device: torch.device, meanwhile: Callable[[], None]
    ) -> Mapping[str, Callable[..., Any]]:
        """A callable for each kernel's symbol; `meanwhile` may be called while they are compiled."""

    def blobs(self, kernels: Iterable[Kernel], device: torch.device, store: Any) -> dict[str, bytes]:
        """What is on disk of the kernels' machine code for the device, by key."""


class _Packages:
    """`codegen/NAME` writes kernels and `runtime/NAME` runs them. They are imported when they are wanted: a process
    that finds all of a program's kernels on disk writes none."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _package(self, phase: str) -> Any:
        return loaded(f"dovetail.{phase}.{self.name}")

    def unavailable(self, device: torch.device) -> str:
        return "" if traits(device).host else str(self._package("runtime").available(device))

    def generate(self, group: Group, options: Options, many: bool = False) -> Kernel:
        made: Kernel = self._package("codegen").generate(group, options, many=many)
        return made

    def begin(self, kernels: Iterable[Kernel], device: torch.device, more: bool) -> None:
        begin = self._package("runtime").begin
        begin(kernels, more) if traits(device).host else begin(kernels, device)

    def give_up(self, kernels: Iterable[Kernel], device: torch.device) -> None:
        if not traits(device).host:
            self._package("runtime").give_up(kernels, device)

    def load(
        self, kernels: Iterable[Kernel], device: torch.device, meanwhile: Callable[[], None]
    ) -> Mapping[str, Callable[..., Any]]:
        load = self._package("runtime").load
        made: Mapping[str, Callable[..., Any]]
        made = load(kernels) if traits(device).host else load(kernels, device, meanwhile=meanwhile)
        return made

    def blobs(self, kernels: Iterable[Kernel], device: torch.device, store: Any) -> dict[str, bytes]:
        found: dict[str, bytes] = self._package("runtime").blobs(kernels, device, store)
        return found


TARGETS: dict[str, Target] = {HOST.type: _Packages("cpu"), GPU: _Packages("gpu")}


def unavailable(device: torch.device) -> str:
    """Why no kernels can be compiled for the device; empty where they can."""
    if device.type not in TARGETS:
        return f"kernels exist for {' and '.join(TARGETS)}, not for {device}"
    return TARGETS[device.type].unavailable(device)


def generate(group: Group, options: Options, many: bool = False) -> Kernel:
    """The kernel for the device that the group computes on. A check of sizes alone is the host's."""
    used = {buffer.device.type for buffer in (*reads(group).values(), *writes(group).values())}
    others = sorted(used - {HOST.type})
    return TARGETS[others[0] if others else HOST.type].generate(group, options, many=many)


FIRST = 24_000  # characters of kernels for which machine code is begun before the others are written
FASTER = 3  # than making machine code of kernels is writing them


def generate_all(groups: Iterable[Group], options: Options) -> dict[str, Kernel]:
    """The kernels of groups, by their names. Machine code for the first ones is made while the others are written: in a
    few portions where it is made together, each but the first of which begins about when the one before it is done."""
    kernels: dict[str, Kernel] = {}
    waiting: dict[str, Kernel] = {}
    known, begun = set[str](), 0
    for group in groups:
        kernel = kernels[group.name] = generate(group, options)
        if kernel.symbol in known:
            continue
        known.add(kernel.symbol)
        waiting[kernel.symbol] = kernel
        size = sum(len(each.text) for each in waiting.values())
        if not traits(kernel.device).together or size >= max(FIRST, FASTER * begun):
            begin(waiting.values(), more=True)
            begun += size
            waiting.clear()
    return kernels


def by_device(kernels: Iterable[Kernel]) -> dict[torch.device, list[Kernel]]:
    """The kernels of each device."""
    found: dict[torch.device, list[Kernel]] = {}
    for kernel in kernels:
        found.setdefault(kernel.device, []).append(kernel)
    return found


def begin(kernels: Iterable[Kernel], devices: Iterable[torch.device] = (), more: bool = False) -> None:
    """Let machine code that `load` will be asked for be made while Python goes on; without kernels, what most programs
    on `devices` need."""
    for device, mine in {**{device: [] for device in devices}, **by_device(kernels)}.items():
        TARGETS[device.type].begin(mine, device, more)


def begin_launched(kernels: Mapping[str, Kernel], launched: Iterable[str]) -> None:
    """The same of what a program launches, by the names of `kernels`; nobody will load the others."""
    wanted = {kernels[name].symbol: kernels[name] for name in launched}
    for device, mine in by_device(k for k in kernels.values() if k.symbol not in wanted).items():
        TARGETS[device.type].give_up(mine, device)
    begin(wanted.values())


def load(kernels: Iterable[Kernel], meanwhile: Callable[[torch.device], None]) -> dict[str, Callable[..., Any]]:
    """Machine code for each kernel, on its device, by symbol."""
    loaded: dict[str, Callable[..., Any]] = {}
    for device, mine in by_device(kernels).items():
        loaded |= TARGETS[device.type].load(mine, device, lambda device=device: meanwhile(device))  # type: ignore[misc]
    return loaded


def blobs(kernels: Iterable[Kernel], store: Any) -> dict[str, bytes]:
    """What is on disk of the kernels' machine code, by key."""
    found: dict[str, bytes] = {}
    for device, mine in by_device(kernels).items():
        found |= TARGETS[device.type].blobs(mine, device, store)
    return found

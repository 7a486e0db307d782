"""What is known of GPUs, by compute capability: what a kernel may use of each, and what was measured on it.

Kernels of loops compile for all of them. What else there is, such as products in TF32, is for those that were measured.
"""

from __future__ import annotations

import torch

from dovetail.ir.devices import GPU
from dovetail.ir.products import ProductTiles
from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class Rates:
    """In microseconds: what cuBLAS multiplies in float32 (small: in fewer than 2**33 products) and what is moved in
    one; tiles that are computed at a time; what they take to begin and end, and a launch; what a tile takes for an
    element of the sum."""

    multiplied: float
    multiplied_small: float
    moved: float
    at_once: int
    wave: float
    launch: float
    tiles: dict[ProductTiles, float]


@dataclass(frozen=True)
class HalfRates:
    """Of products of half types, in microseconds: what cuBLAS multiplies and adds in one, also where rows begin at
    multiples of so many bytes only; what is moved in one; a launch."""

    aligned: float
    misaligned: dict[int, float]
    moved: float
    launch: float


@dataclass(frozen=True)
class Gpu:
    """`shared`: bytes of shared memory that a program of a kernel may have. The others are None where nobody has
    measured."""

    shared: int
    float32: Rates | None = None
    half: HalfRates | None = None


_LITTLE, _SOME, _MUCH = 99 << 10, 163 << 10, 227 << 10

GPUS = {
    (8, 0): Gpu(_SOME),
    (8, 6): Gpu(_LITTLE),
    (8, 7): Gpu(_SOME),
    (8, 9): Gpu(_LITTLE),
    (9, 0): Gpu(  # an H100 with PyTorch 2.11 (`docs/gpu-kernels.md`)
        _MUCH,
        Rates(
            49e6, 41e6, 2.8e6, 264, wave=4.0, launch=2.0,
            tiles={ProductTiles(128, 64, 4, 3): 0.0389, ProductTiles(64, 64, 4, 4): 0.0242},
        ),
        HalfRates(550e6, {2: 115e6, 4: 210e6, 8: 230e6}, 2.8e6, launch=2.0),
    ),
    (10, 0): Gpu(_MUCH),
    (10, 3): Gpu(_MUCH),
    (12, 0): Gpu(_LITTLE),
    (12, 1): Gpu(_LITTLE),
}  # fmt: skip
#: One that is not listed, and one that kernels are only written for.
_UNKNOWN, _NONE = Gpu(_LITTLE), Gpu(_MUCH)


def gpu(device: torch.device) -> Gpu:
    """The one that a device is."""
    if device.type != GPU or not torch.cuda.is_available():
        return _NONE
    return GPUS.get(torch.cuda.get_device_capability(device), _UNKNOWN)

"""Which products of float32 are faster as kernels of TF32, and in what tiles: a model of what both take. And which of
half types are faster padded.

A device computes as many tiles at a time as fit on it, and a wave of them takes as long if it is not full. Measured on
an H100 with PyTorch 2.11 (`docs/gpu-kernels.md`): of twelve products the model is off by 15% at most.
"""

from __future__ import annotations

import torch

from dovetail.ir.gpus import HalfRates, Rates, gpu
from dovetail.ir.products import Product

#: A kernel must be faster by so much: each is one more to compile.
GAIN = 1.1
#: Sums are cut into at most so many parts.
MOST_PARTS = 12
#: Indices of elements are held in 32 bits.
LARGEST = 2**31 - 2**20


def rates(device: torch.device) -> Rates | None:
    """None for a device whose kernels are not known to be faster."""
    return gpu(device).float32


def library(product: Product, rate: Rates) -> float:
    """Microseconds that cuBLAS takes, at best."""
    p = product
    moved, multiplied = 4 * p.batch * (p.m * p.k + p.n * p.k + p.m * p.n), p.batch * p.m * p.n * p.k
    fast = rate.multiplied_small if multiplied < 2**33 else rate.multiplied
    return max(2 * multiplied / fast, moved / rate.moved) + rate.launch


def microseconds(product: Product, rate: Rates) -> float:
    """What the kernel takes, the ones that split b and align a, and what adds up the parts."""
    p, tiles = product, product.tiles
    count = -(-p.m // tiles.rows) * -(-p.n // tiles.columns) * p.batch * p.parts
    waves = -(-count // rate.at_once)
    found = waves * (p.part * rate.tiles[tiles] + rate.wave)
    split = 12 * p.batch * p.n * p.padded / rate.moved + rate.launch
    aligned = 8 * p.batch * p.m * p.k / rate.moved + rate.launch if p.copied else 0.0
    joined = 8 * p.parts * p.batch * p.m * p.n / rate.moved + rate.launch if p.parts > 1 else 0.0
    return found + split + aligned + joined


#: Rows of so many elements begin at multiples of 16 bytes.
_ALIGNED = 8


def half_rates(device: torch.device) -> HalfRates | None:
    """None for a device that nobody has measured."""
    return gpu(device).half


def misaligned(size: int) -> int:
    """What a row of elements of two bytes lacks to be aligned."""
    return -size % _ALIGNED


def padded_us(
    batch: int, sizes: tuple[int, int, int], missing: tuple[int, int, int], rate: HalfRates
) -> tuple[float, float]:
    """Microseconds of a product of (m, k) and (k, n) as it is, and with so much added to m, k and n: at worst, where no
    kernel makes the padded matrices anyway."""
    (m, k, n), (more_m, more_k, more_n) = sizes, missing
    worst = min(_bytes(size) for size, more in zip(sizes, missing, strict=True) if more)
    operations, moved = 2 * batch * m * k * n, 2 * batch * (m * k + k * n + m * n)
    plain = max(operations / rate.misaligned.get(worst, rate.aligned), moved / rate.moved) + rate.launch
    fast = max(operations / rate.aligned, moved / rate.moved) + rate.launch
    copies = [(m * k, more_m or more_k), (k * n, more_k or more_n), (m * n, more_n)]
    return plain, fast + sum(4 * batch * size / rate.moved + rate.launch for size, copied in copies if copied)


def _bytes(size: int) -> int:
    """What rows of so many elements begin at multiples of."""
    return 2 * (size & -size)

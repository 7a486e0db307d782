"""How long gradients of attention take on a GPU: by PyTorch's kernels, and by products with a softmax in between.

PyTorch's kernels have a block for each few keys of a head, which goes through all queries. With few keys in few heads
most of the device is idle. Products of few keys take a block through all rows too, where cuBLAS cannot read them 16
bytes at a time. Measured on an H100, us of all gradients (`docs/gpu-kernels.md`):

    batch, heads, queries, keys, width   float32: kernel   products   bfloat16: kernel   products
    8, 1, 3136,   49, 64                             632        231                136        133
    1, 8, 2048,   64, 64                             411        123                 98         23
    2, 8, 1024,   77, 64                             272         98                 61         63
    8, 12, 197,  197, 64                             184        113                 49         79
    8, 12, 512,  512, 64                             538        574                111        213
    8, 8, 1024, 1024, 64                            1325       1430                218        525
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class _Kernel:
    """Of one block: the keys that it has, and the microseconds for a query; what any call takes."""

    keys: int
    query: float
    begin: float


@dataclass(frozen=True)
class _Products:
    """Microseconds for an element of a score's sum; for a query, where rows of scores are not read in wide pieces;
    what any call takes."""

    element: float
    query: float
    begin: float


#: By bytes of an element.
_KERNELS = {4: _Kernel(64, 0.2, 18.0), 2: _Kernel(128, 0.045, 15.0)}
_PRODUCTS = {4: _Products(3.2e-7, 0.06, 20.0), 2: _Products(1.2e-7, 0.04, 18.0)}
#: Of the device that was measured; others are taken to be as fast for each processor.
_PROCESSORS = 132
#: A kernel that takes so much longer is left for products, whose scores take memory.
_MUCH = 1.25
_WIDTH = 64
_PIECE = 16


def products_are_faster(sizes: Sequence[int], keys: int, dtype: torch.dtype, device: torch.device) -> bool:
    """For gradients of attention with a query of these sizes."""
    *batch, queries, width = sizes
    heads, processors, itemsize = math.prod(batch), _processors(device), dtype.itemsize
    kernel, products = _KERNELS[itemsize], _PRODUCTS[itemsize]
    turns = -(-heads * -(-keys // kernel.keys) // processors)
    by_kernel = kernel.begin + turns * queries * kernel.query * max(width, _WIDTH) / _WIDTH
    elements = heads * queries * keys * width
    in_turn = 0.0 if itemsize == 2 and keys * itemsize % _PIECE == 0 else queries * products.query
    by_products = products.begin + elements * products.element * _PROCESSORS / processors + in_turn
    return by_kernel > _MUCH * by_products


def _processors(device: torch.device) -> int:
    if not torch.cuda.is_available():
        return _PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)

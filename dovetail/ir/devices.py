"""The kinds of devices that programs run on, and what choices between kernels and PyTorch's own functions depend on.

The one table of them, and the one place where their names are spelled. What makes and runs kernels for a device is in
`targets.py`.
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir.records import dataclass

#: Where Python runs: numbers that it holds, and tensors that hold such.
HOST = torch.device("cpu")
#: The kind of device that PyTorch means where a program names none: `torch.is_autocast_enabled()`.
GPU = "cuda"


@dataclass(frozen=True)
class Traits:
    """Of a kind of device. The default of each is what is safe for one that nobody has measured."""

    host: bool = False  # is its memory this process's, and can what fails there be caught?
    convolutions: str = ""  # the library that computes them: oneDNN or cuDNN
    together: bool = False  # is machine code of several kernels made in less time than that of each?
    loops_of_vectors: bool = False  # are products with a vector faster in loops?
    sorts_to_add: bool = False  # do its kernels sort what they add up at indices?
    sorts_bits: bool = False  # does a sort take less time the shorter its keys are?
    scans: bool = False  # do its kernels scan rows?
    draws: bool = False  # do its kernels draw random numbers?
    pools: bool = False  # are the largest and the mean of small windows faster in kernels?
    depthwise: bool = False  # are convolutions of each channel by itself faster in kernels?
    resizes: bool = False  # are images resized faster in kernels? A CPU's library takes half the time for gradients.
    divides: bool = True  # is a division about as fast as a product?
    records: bool = False  # can what a program launches be recorded, and replayed at once?
    attention: bool = False  # is PyTorch's own attention faster than products with a softmax in between?
    recomputes: int = 10  # the cost of what is computed again where its operands are read anyway
    of_one: int = 5  # the same where it is made of one tensor, which is read in its place
    operations: int = 0  # of kernels, in the time that a byte takes to be read or written; 0 where nobody has measured
    keeps_operands: bool = False  # is what libraries read in both passes kept, rather than written to memory again?
    puts: bool = False  # are rows put at indices in kernels, rather than by a library?
    holds_rows: bool = False  # does a program of a kernel hold a row, so that short kernels need more programs?


TRAITS = {
    HOST.type: Traits(host=True, convolutions="oneDNN", together=True, loops_of_vectors=True),
    GPU: Traits(
        convolutions="cuDNN", loops_of_vectors=True, sorts_to_add=True, sorts_bits=True, scans=True, draws=True,
        pools=True, depthwise=True, resizes=True, divides=False, records=True, attention=True, recomputes=40,
        of_one=10, operations=12, keeps_operands=True, puts=True, holds_rows=True,
    ),
}  # fmt: skip
_OTHERS = Traits()


def traits(device: torch.device) -> Traits:
    """What is known of devices of this kind."""
    return TRAITS.get(device.type, _OTHERS)


def on_host(value: Any) -> bool:
    """Does a tensor, or what else has a device, lie in this process's memory?"""
    return traits(value.device).host


def on_gpu(value: Any) -> bool:
    """Does a tensor, or what else has a device, lie where PyTorch's CUDA functions compute?"""
    return bool(value.device.type == GPU)

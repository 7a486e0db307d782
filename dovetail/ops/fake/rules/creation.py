"""Rules for tensors made from numbers, sizes among them."""

from __future__ import annotations

from math import lcm
from typing import Any

import torch

from dovetail.ir.devices import GPU, HOST
from dovetail.ops.fake.result_spec import Spec
from dovetail.ops.fake.rules.layout import contiguous
from dovetail.ops.fake.rules.upsampling import LARGEST_DENOMINATOR
from dovetail.ops.fake.symbolic.size_questions import expected
from dovetail.ops.fake.symbolic.symint import is_size

aten = torch.ops.aten


def placed(device: Any) -> torch.device:
    """The device that a name stands for."""
    device = torch.device(device)
    if device.type == GPU and device.index is None:
        return torch.device(GPU, torch.cuda.current_device())
    return device


def arange(
    start: Any, end: Any, step: Any = 1, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None,
) -> Any:  # fmt: skip
    """Of steps in float: ceil((end - start) / step) in fractions, which is what float64 gives of such numbers."""
    floats = [n for n in (start, end, step) if isinstance(n, float)]
    if not floats or not all(isinstance(n, (int, float)) or is_size(n) for n in (start, end, step)):
        return NotImplemented
    ratios = [n.as_integer_ratio() if abs(n) < _LARGEST else (0, LARGEST_DENOMINATOR + 1) for n in floats]
    unit = lcm(*(below for _, below in ratios))
    made = torch.get_default_dtype() if dtype is None else dtype
    if unit > LARGEST_DENOMINATOR or not made.is_floating_point or not isinstance(step, (int, float)) or not step:
        return NotImplemented
    first, last, apart = (int(n * unit) if isinstance(n, float) else n * unit for n in (start, end, step))
    reach = last - first if apart > 0 else first - last
    if not expected(reach >= 0):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    sizes = ((reach + abs(apart) - 1) // abs(apart),)
    return Spec(sizes, contiguous(sizes), made, placed(device or HOST))


_LARGEST = 2.0**31


def up_to(end: Any, **kwargs: Any) -> Any:
    """`arange` from 0."""
    return arange(0, end, **kwargs)

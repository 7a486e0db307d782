"""PyTorch's fused optimizer steps, as the operators that their CPU kernels compute with.

Taken apart they fuse with what comes before, as the gradient's computation, and share kernels with other steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from dovetail.ops.calls.schema import bound
from dovetail.ops.fake.symbolic.number import SYMBOLIC

Tensor = torch.Tensor


def is_fused(func: Any) -> bool:
    """Is it one of PyTorch's fused steps?"""
    return func._schema.name in STEPS


def fused(func: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    """Run the step on each parameter."""
    given = {a.name: a.default_value for a in func._schema.arguments} | bound(func, args, kwargs)
    step = STEPS[func._schema.name]
    lists = {name: value for name, value in given.items() if isinstance(value, (list, tuple))}
    settings = {name: value for name, value in given.items() if name not in lists}
    if isinstance(given["lr"], SYMBOLIC):  # a tensor can be computed with, as the steps do
        rate: Any = given["lr"]
        settings["lr"] = torch.full((), rate, dtype=torch.float64, device=given["self"][0].device)
    for k in range(len(lists["self"])):
        _one(step, {name: tensors[k] if tensors else None for name, tensors in lists.items()}, settings)


def apart(func: Any, *args: Any, **kwargs: Any) -> None:
    """`fused`, called as the function is."""
    fused(func, args, kwargs)


def _one(step: Callable[..., dict[str, Tensor]], row: dict[str, Any], settings: dict[str, Any]) -> None:
    """New values are written where `found_inf` is not 1; a scaled gradient is written back unscaled."""
    grad, scale, stop = row["grads"], settings["grad_scale"], settings["found_inf"]
    new: dict[str, Tensor] = {}
    if scale is not None:
        grad = new["grads"] = grad / scale
    plain = {k: v for k, v in settings.items() if k not in ("grad_scale", "found_inf", "maximize")}
    new |= step(**{**row, "grads": -grad if settings["maximize"] else grad}, **plain)
    for name, value in new.items():
        row[name].copy_(value if stop is None else torch.where(stop == 1, row[name], value))


def _adam(
    self: Tensor, grads: Tensor, exp_avgs: Tensor, exp_avg_sqs: Tensor, max_exp_avg_sqs: Tensor | None,
    state_steps: Tensor, lr: Any, beta1: float, beta2: float, weight_decay: float, eps: float, amsgrad: bool,
    decoupled: bool = False,
) -> dict[str, Tensor]:  # fmt: skip
    count = state_steps.to(torch.float64)
    if weight_decay != 0 and decoupled:
        self = self * (1 - lr * weight_decay)
    elif weight_decay != 0:
        grads = grads + self * weight_decay
    first = torch.lerp(exp_avgs, grads, 1 - beta1)
    second = exp_avg_sqs * beta2 + grads * grads * (1 - beta2)
    new = {"exp_avgs": first, "exp_avg_sqs": second}
    if amsgrad:
        assert max_exp_avg_sqs is not None
        second = new["max_exp_avg_sqs"] = torch.maximum(max_exp_avg_sqs, second)
    denominator = second.sqrt() / (1 - beta2**count).sqrt() + eps
    new["self"] = self - first * (lr / (1 - beta1**count)) / denominator
    return new


def _sgd(
    self: Tensor, grads: Tensor, momentum_buffer_list: Tensor | None, weight_decay: float, momentum: float, lr: Any,
    dampening: float, nesterov: bool, is_first_step: bool,
) -> dict[str, Tensor]:  # fmt: skip
    if weight_decay != 0:
        grads = grads + self * weight_decay
    new = {}
    if momentum != 0:
        assert momentum_buffer_list is not None
        kept = grads if is_first_step else momentum_buffer_list * momentum + grads * (1 - dampening)
        new["momentum_buffer_list"] = kept
        grads = grads + kept * momentum if nesterov else kept
    return new | {"self": self - grads * lr}


def _adagrad(
    self: Tensor, grads: Tensor, state_sums: Tensor, state_steps: Tensor, lr: Any, lr_decay: float,
    weight_decay: float, eps: float,
) -> dict[str, Tensor]:  # fmt: skip
    rate = lr / ((state_steps.to(torch.float64) - 1) * lr_decay + 1)
    if weight_decay != 0:
        grads = grads + self * weight_decay
    total = state_sums + grads * grads
    return {"state_sums": total, "self": self - grads * rate / (total.sqrt() + eps)}


STEPS: dict[str, Callable[..., dict[str, Tensor]]] = {
    "aten::_fused_adam_": _adam,
    "aten::_fused_adamw_": partial(_adam, decoupled=True),
    "aten::_fused_sgd_": _sgd,
    "aten::_fused_adagrad_": _adagrad,
}

#: PyTorch's functions → the same taken apart. The functions themselves take no rate that varies.
FUSED_STEPS = {
    getattr(torch, name): partial(apart, getattr(torch.ops.aten, name).default)
    for name in (found.removeprefix("aten::") for found in STEPS)
}

"""Importing this module fills the tables with the functions that call functions."""

from dovetail.capture.higher_order import (
    attention_switches,
    autograd_function,
    autograd_grad,
    checkpoint,
    control_flow,
    exported_blocks,
    func_transforms,
    functional_call,
)

__all__ = [
    "attention_switches",
    "autograd_function",
    "autograd_grad",
    "checkpoint",
    "control_flow",
    "exported_blocks",
    "func_transforms",
    "functional_call",
]

"""What PyTorch has written down about a module under its identity: a compiled module is the same one.

`fully_shard` and its like keep a state for each module in a table that is keyed by the module. They find it for what
stands in a model's tree, which is the compiled module, though the original was sharded.
"""

from __future__ import annotations

import sys

import torch

_MODULE = "torch.distributed._composable_state"


def share_state(compiled: torch.nn.Module, original: torch.nn.Module) -> None:
    """Give the compiled module the state that the original has, where a program has given it one."""
    states = getattr(sys.modules.get(_MODULE), "_module_state_mapping", None)
    if states is not None and original in states:
        states[compiled] = states[original]

"""Modules that `fully_shard` has been given, by the states that PyTorch keeps of them."""

from __future__ import annotations

import sys
from typing import Any

_STATES, _SHARDING = "torch.distributed._composable_state", "torch.distributed.fsdp._fully_shard._fsdp_state"


def sharded() -> list[Any]:
    """Their states."""
    kind = getattr(sys.modules.get(_SHARDING), "FSDPState", None)
    states = getattr(sys.modules.get(_STATES), "_module_state_mapping", {})
    return [] if kind is None else [s for s in [reference() for reference in [*states.values()]] if isinstance(s, kind)]


def gathered() -> set[int]:
    """Identities of the parameters that are gathered for each pass, and of what distributed ones are made of: their
    memory is allocated anew each time, and lies where it did before by chance."""
    groups = [group for state in sharded() for group in _groups(state) if group is not None]
    found = [getattr(each, "_unsharded_param", None) for group in groups for each in group.fsdp_params]
    return {id(each) for p in found if p is not None for each in (p, getattr(p, "_local_tensor", p))}


def _groups(state: Any) -> list[Any]:
    several = getattr(state, "_fsdp_param_groups", None)  # since PyTorch 2.13
    return [getattr(state, "_fsdp_param_group", None)] if several is None else several

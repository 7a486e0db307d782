"""Groups of processes, meshes of them, and the placements of distributed tensors on these, as another process has them.

What is compiled for a tensor on a mesh depends on the ranks in it, on the place of this one, and on the names of the
groups that collectives run in: a process in which any of these is another does not use it.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch.distributed as dist
from torch.distributed import device_mesh

#: Nothing is one where PyTorch was built without `torch.distributed`.
MESH: Any = getattr(device_mesh, "DeviceMesh", ())
GROUP: Any = getattr(dist, "ProcessGroup", None)
PLACEMENTS = frozenset(("Shard", "Replicate", "Partial", "_StridedShard"))
SPEC = "torch.distributed.tensor._dtensor_spec.DTensorSpec"


def is_mesh(obj: Any) -> bool:
    return isinstance(obj, MESH)


def names_spec(cls: type) -> bool:
    """Is it the class of what says where a tensor lies on a mesh, and how? Few programs import it."""
    return f"{cls.__module__}.{cls.__qualname__}" == SPEC


def is_placement(obj: Any) -> bool:
    """Is it one of PyTorch's, with numbers and words in it alone?"""
    cls = type(obj)
    return cls.__module__ == "torch.distributed.tensor.placement_types" and cls.__qualname__ in PLACEMENTS


def parts_of(obj: Any) -> tuple[str, Any] | None:
    """What such an object is, in other ones that say what they are. None for all others."""
    if names_spec(type(obj)):
        return "spec", (obj.mesh, obj.placements, obj.tensor_meta, obj.shard_order)
    if is_placement(obj):
        state = obj.__reduce_ex__(2)[2] or {}
        return type(obj).__qualname__, tuple(sorted(state.items()))
    if is_mesh(obj) and obj.get_coordinate() is not None:
        return "mesh", _of_mesh(obj)
    if GROUP is None:
        return None
    if isinstance(obj, GROUP):
        return "group", (obj.group_name, _of_group(obj))
    name = getattr(obj, "__name__", "")
    return ("method of a group", name) if type(name) is str and vars(GROUP).get(name) is obj else None


def _of_mesh(mesh: Any) -> tuple:
    groups = tuple((group.group_name, _of_group(group)) for group in mesh.get_all_groups())
    ranks = tuple(mesh.mesh.shape), tuple(mesh.mesh.flatten().tolist())
    return mesh.device_type, ranks, mesh.mesh_dim_names, tuple(mesh.get_coordinate()), groups


def group_named(name: str) -> tuple:
    """Its ranks, this one's place among them, and by what they talk."""
    return _of_group(dist.distributed_c10d._resolve_process_group(name))  # type: ignore[arg-type]


def _of_group(group: Any) -> tuple:
    return tuple(dist.get_process_group_ranks(group)), dist.get_rank(group), dist.get_backend(group)


def ways_of_operators() -> tuple:
    """What decides beside tensors and meshes how operators on distributed tensors run: regions as `loss_parallel`."""
    dispatcher: Any = importlib.import_module("torch.distributed.tensor").DTensor._op_dispatcher
    handlers = sorted(f"{o} {h.__qualname__}" for o, h in dispatcher._custom_op_handlers.items())
    return bool(getattr(dispatcher, "_allow_implicit_replication", False)), tuple(handlers)


def fields_of_spec(spec: Any) -> tuple:
    """Beside its mesh. Its hash, which it remembers, is each process' own."""
    return spec.placements, spec.tensor_meta, None if spec.use_strided_shard_as_shard_order else spec.shard_order


def spec_of(mesh: Any, placements: Any, meta: Any, order: Any) -> Any:
    module, _, name = SPEC.rpartition(".")
    return getattr(importlib.import_module(module), name)(mesh, placements, meta, order)

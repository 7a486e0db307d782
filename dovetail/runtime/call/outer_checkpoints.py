"""Compiled functions inside `torch.utils.checkpoint`: what is computed again must be kept in the same order.

A checkpoint takes what its second forward pass keeps for what the first one kept, one after the other. A compiled
function may run other code by then, which keeps other tensors: under hooks of the program's, for example, the second
pass is given two tensors where the first had one twice. PyTorch compares types and shapes only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint

_MODULE = "torch.utils.checkpoint"
_FIRST, _AGAIN = "_checkpoint_hook.__init__.<locals>.pack_hook", "_recomputation_hook.__init__.<locals>.pack_hook"
_NOTE = "_dovetail_kept"  # on a checkpoint's frame: what compiled functions keep, by the number of tensors before


def compare(kept: tuple[str, ...]) -> None:
    """A compiled function is about to keep tensors with these names: equal where the same is computed of the same.
    Raises CheckpointError if it kept others in the first pass."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if hooks is not None:
        _compare(hooks[0], kept)


def _compare(pack: Callable[..., Any], kept: tuple[str, ...]) -> None:
    function = inspect.unwrap(pack)
    kind = getattr(function, "__qualname__", "")
    if kind not in (_FIRST, _AGAIN) or function.__module__ != _MODULE:
        return
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if kind == _FIRST:
        frame = cells["frame"].cell_contents
        vars(frame).setdefault(_NOTE, {})[len(frame.weak_holders)] = kept
        return
    frame = cells["target_frame_ref"].cell_contents()
    place = frame.recomp_counter[cells["gid"].cell_contents]
    if vars(frame).get(_NOTE, {}).get(place, kept) != kept:
        raise torch.utils.checkpoint.CheckpointError(
            "a compiled function was given other arguments when a checkpoint computed it again, and keeps other "
            "tensors for its backward pass: the same tensor twice, for example, which hooks on saved tensors make two. "
            "Leave the hooks off around the checkpoint, or compile the checkpoint with what is in it"
        )

"""Results that are arguments, share their memory or each other's: as in eager, however the arguments are laid out."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

import dovetail

PROGRAMS = {
    "arguments": lambda x, y: (x, y, {"again": x}),
    "what may be a copy": lambda x, y: (x.contiguous(), x.t().contiguous(), x.reshape(-1), x.to(y), x.float()),
    "layouts": lambda x, y: x[None, None].to(memory_format=torch.channels_last),
    "views": lambda x, y: (x.t(), x[0], x[:], x.view(x.shape), x.expand(2, 4, 4), x.detach(), x.unfold(0, 4, 1)),
    "parts": lambda x, y: (*x.chunk(2), *torch.broadcast_tensors(x, y), torch.einsum("ii->i", x)),
    "what does nothing": lambda x, y: (F.dropout(x, training=False), F.pad(x, (0, 0)), x.conj().resolve_conj(), +x),
    "writes": lambda x, y: (x.add_(1), torch.add(x, y, out=y), x[0].mul_(2), x),
    "writes to what may be a copy": lambda x, y: x.contiguous().add_(1),
    "views of what may be a copy": lambda x, y: (x * 2).contiguous().view(16),
}
BASE = torch.randn(8, 8)
ARGUMENTS = {
    "plain": lambda: (torch.randn(4, 4), torch.randn(4, 4)),
    "transposed": lambda: (torch.randn(4, 4).t(), torch.randn(4, 4)),
    "one twice": lambda: (torch.ones(4, 4),) * 2,
    "overlapping": lambda: (BASE[:4, :4], BASE[2:6, ::2]),
}


def told(function, args):
    args = copy.deepcopy(args)
    known = [*args, *torch.utils._pytree.tree_leaves(function(*args))]
    places = [t.untyped_storage().data_ptr() for t in known]
    same = [[(a is b, p == q) for b, q in zip(known, places)] for a, p in zip(known, places)]
    return [t.tolist() for t in known], same, [(t.stride(), t.storage_offset()) for t in known]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_share_memory_as_in_eager(name):
    module = dovetail.export(PROGRAMS[name], (torch.ones(4, 4), torch.ones(4, 4))).module()
    for make in ARGUMENTS.values():
        args = make()
        assert told(module, args) == told(PROGRAMS[name], args)

"""Where recordings are cut into CUDA graphs."""

from __future__ import annotations

import pytest
import torch

from dovetail.codegen.host.graph_segments import cuts
from dovetail.ir.loops import Buffer, LibraryCall, Program


@pytest.mark.parametrize(
    ("launches", "expected"),
    [(10, []), (95, []), (96, [48]), (522, [48, 192]), (1644, [48, 192, 624])],
)
def test_the_first_graph_is_short_and_the_next_ones_longer(launches, expected):
    assert sorted(cuts(_program(launches, "cuda"))) == expected
    assert not cuts(_program(launches, "cpu"))


def _program(launches: int, device: str) -> Program:
    made = [Buffer(f"b{k}", torch.float32, torch.device(device), (4,), (1,)) for k in range(launches)]
    items = [LibraryCall(b.name, torch.ops.aten.rand.default, ([4],), {}, (b,)) for b in made]
    return Program((), tuple(items), ())

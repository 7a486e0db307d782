"""Where recordings are cut into CUDA graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dovetail.codegen.host.graph_segments import cuts
from dovetail.ir.loops import Buffer, LibraryCall, Output, Program


@pytest.mark.parametrize(
    ("launches", "expected"),
    [(10, []), (95, []), (96, [48]), (522, [48, 192]), (1644, [48, 192, 624])],
)
def test_the_first_graph_is_short_and_the_next_ones_longer(launches, expected):
    assert sorted(cuts(_program(launches, "cuda"))) == expected
    assert not cuts(_program(launches, "cpu"))


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [([3, 7, 9], [4, 8]), ([0, 9], [1]), ([9], []), ([3, 3, 9], [4]), ([8, 9], [9])],
)
def test_each_bucket_of_outputs_has_graphs_of_its_own(buckets, expected):
    """Given by the last launch of each."""
    program = _program(10, "cuda")
    outputs = tuple(Output(program.items[k].results[0]) for k in buckets)
    divided = replace(program, outputs=outputs, buckets=tuple((k,) for k in range(len(buckets))))
    assert sorted(cuts(divided)) == expected


def _program(launches: int, device: str) -> Program:
    made = [Buffer(f"b{k}", torch.float32, torch.device(device), (4,), (1,)) for k in range(launches)]
    items = [LibraryCall(b.name, torch.ops.aten.rand.default, ([4],), {}, (b,)) for b in made]
    return Program((), tuple(items), ())

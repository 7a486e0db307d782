"""Is the list of operators that take any layout what experiments say, and does oneDNN compute what it is given?"""

from __future__ import annotations

import zlib

import pytest
import torch

from dovetail.ops.calls.layouts import LISTED, takes_any_layout, takes_images
from tests.layouts.convolutions import COMMAND, guarded
from tests.layouts.table import found_of
from tests.opdb.entries import entries

SOME = [e.name for e in entries() if e.dtype is torch.float32 and zlib.crc32(e.name.encode()) % 24 == 1]


@pytest.mark.usefixtures("threads_put_back")
@pytest.mark.parametrize("source", [*SOME, 3], ids=str)
def test_experiments_agree_with_the_list(source):
    for verdict, surprise in found_of(source, samples=1):
        assert not verdict.fault or verdict.name not in LISTED["cpu"], verdict
        assert not verdict.image_fault or verdict.name not in LISTED["cpu images"], verdict
        assert not surprise, verdict.name


aten = torch.ops.aten


@pytest.mark.parametrize("device, operator, anything, images", [
    ("cpu", aten.add.Tensor, True, False), ("cpu", aten.cat.default, True, False),
    ("cpu", aten.native_batch_norm_backward.default, False, True),
    ("cpu", aten.native_layer_norm_backward.default, False, False), ("cpu", aten.native_dropout.default, False, False),
    ("cpu", aten._weight_norm_interface.default, False, False), ("cpu", aten._pdist_forward.default, False, False),
    ("cuda", aten.add.Tensor, True, True), ("cuda", aten.native_group_norm_backward.default, False, False),
    ("cuda", aten.uniform.default, False, False), ("cuda", aten.cudnn_batch_norm.default, False, True),
])  # fmt: skip
def test_who_takes_other_layouts(device, operator, anything, images):
    assert (takes_any_layout(operator, device), takes_images(operator, device)) == (anything, images)


def test_convolutions_that_may_be_given_the_channels_last():
    made = guarded([*COMMAND, "--sound", "--count", "30"])
    assert made.returncode == 0, made.stdout + made.stderr
    assert "0 of 30 shapes are wrong" in made.stdout


@pytest.mark.parametrize("behind", [0, 64])
def test_what_is_written_behind_memory_is_seen(behind):
    write = "import ctypes, torch; x = torch.ones(100); ctypes.memset(x.data_ptr() + {}, 0, 1); del x"
    assert guarded(["-c", write.format(399)]).returncode == 0
    assert guarded(["-c", write.format(400 + behind)]).returncode < 0

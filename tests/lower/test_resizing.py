"""Images made larger: nearest neighbours in loops where places are exact, in PyTorch's kernels where they are not."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import dovetail
from dovetail.ir.loops import LibraryCall
from dovetail.options import Options
from dovetail.schedule import schedule
from tests.schedule.test_meaning import lowered
from tests.traits import give_host


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    give_host(monkeypatch, resizes=True)


def image(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(sizes), torch.contiguous_format)
    return torch.randn(sizes).to(dtype).contiguous(memory_format=layout)


SIZES = {
    "twice": (image(2, 3, 4, 5), {"scale_factor": 2.0}),
    "to a size": (image(2, 3, 4, 5), {"size": (16, 5)}),
    "thrice": (image(2, 3, 7, 5), {"scale_factor": 3.0}),
    "by a broken number": (image(2, 3, 4, 5), {"scale_factor": 2.3}),
    "as large, at another scale": (image(2, 3, 3, 3), {"scale_factor": 2.1}),
    "smaller": (image(2, 3, 4, 6), {"scale_factor": 0.5}),
    "contiguous": (image(2, 3, 4, 5).contiguous(), {"scale_factor": 4.0}),
    "a line": (image(2, 3, 5), {"scale_factor": 2.0}),
    "a volume": (image(2, 3, 2, 3, 4), {"scale_factor": (2, 1, 4)}),
    "half types": (image(2, 3, 4, 5, dtype=torch.bfloat16), {"scale_factor": 2}),
    "empty": (image(0, 3, 4, 5), {"scale_factor": 2}),
}


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("name", SIZES)
def test_like_eager(name: str, mode: str) -> None:
    x, given = SIZES[name]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x * 2, mode=mode, **given).sin()

    ours = dovetail.compile(fn, fullgraph=True)
    theirs, mine = (x.clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2))
    want, got = fn(theirs), ours(mine)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want)
    want.sum().backward()
    got.sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize(("name", "calls"), [("twice", 0), ("to a size", 0), ("a volume", 0), ("thrice", 1)])
def test_where_the_library_is_called(name: str, calls: int) -> None:
    x, given = SIZES[name]
    program = schedule(lowered(lambda x: F.interpolate(x.sin(), mode="nearest", **given).cos(), x), Options())
    assert sum(isinstance(item, LibraryCall) for item in program.items) == calls


def test_any_size() -> None:
    fn = dovetail.compile(lambda x: F.interpolate(x * 2, scale_factor=2, mode="nearest") + 1, dynamic=True)
    for sizes in ((2, 3, 4, 5), (1, 3, 7, 2), (3, 1, 1, 1), (2, 5, 9, 30)):
        x = image(*sizes)
        assert torch.equal(fn(x), F.interpolate(x * 2, scale_factor=2, mode="nearest") + 1)

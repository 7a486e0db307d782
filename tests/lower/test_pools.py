"""Windows of images in loops, as GPUs have them: against eager, with gradients, in all layouts."""

from __future__ import annotations

import itertools

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
    give_host(monkeypatch, pools=True)


def image(*sizes: int, dtype: torch.dtype = torch.float32, last: bool = True) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(sizes).to(dtype)
    return x.contiguous(memory_format=torch.channels_last) if last and len(sizes) == 4 else x


WINDOWS = {
    "halves": dict(kernel_size=2),
    "overlapping": dict(kernel_size=3, stride=1, padding=1),
    "with gaps": dict(kernel_size=2, stride=3),
    "only elements": dict(kernel_size=3, stride=2, padding=1, count_include_pad=False),
    "cut off": dict(kernel_size=(2, 3), stride=2, ceil_mode=True),
    "cut off, padded": dict(kernel_size=3, stride=2, padding=1, ceil_mode=True),
    "cut off, only elements": dict(kernel_size=3, stride=2, padding=(0, 1), ceil_mode=True, count_include_pad=False),
    "divided by another number": dict(kernel_size=3, stride=2, padding=1, divisor_override=5),
    "flat": dict(kernel_size=(1, 4), stride=(1, 2), padding=(0, 2)),
    "large": dict(kernel_size=5, stride=2),
    "large, padded": dict(kernel_size=5, stride=1, padding=2),
    "one": dict(kernel_size=1, stride=2),
}  # fmt: skip
IMAGES = {
    "channels last": image(2, 3, 8, 9),
    "contiguous": image(2, 3, 7, 8, last=False),
    "one": image(3, 6, 7),
    "half types": image(2, 4, 9, 6, dtype=torch.bfloat16),
    "empty": image(0, 3, 6, 6),
}


@pytest.mark.parametrize(("name", "shape"), [*itertools.product(WINDOWS, IMAGES)])
def test_like_eager(name: str, shape: str) -> None:
    x, given = IMAGES[shape], WINDOWS[name]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x * 2, **given).sin()

    theirs, mine = (x.clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2))
    want, got = fn(theirs), dovetail.compile(fn, fullgraph=True)(mine)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want)
    weight = torch.randn(want.shape).to(want.dtype)
    (want * weight).sum().backward()
    (got * weight).sum().backward()
    rounded_often = {"rtol": 0.02, "atol": 0.02} if x.dtype is torch.bfloat16 else {}  # by the CPU's eager
    torch.testing.assert_close(mine.grad, theirs.grad, **rounded_often)


@pytest.mark.parametrize(("name", "calls"), [("halves", 0), ("only elements", 0), ("cut off, padded", 0), ("large", 1)])
def test_where_the_library_is_called(name: str, calls: int) -> None:
    program = schedule(lowered(lambda x: F.avg_pool2d(x.sin(), **WINDOWS[name]).cos(), image(2, 3, 8, 9)), Options())
    assert sum(isinstance(item, LibraryCall) for item in program.items) == calls


LARGEST = {
    "halves": dict(kernel_size=2),
    "overlapping": dict(kernel_size=3, stride=2, padding=1),
    "with gaps": dict(kernel_size=2, stride=3),
    "cut off": dict(kernel_size=(2, 3), stride=2, ceil_mode=True),
    "cut off, padded": dict(kernel_size=3, stride=2, padding=1, ceil_mode=True),
    "many windows": dict(kernel_size=3, stride=1, padding=1),
    "dilated": dict(kernel_size=2, stride=2, dilation=2),
}


@pytest.mark.parametrize("rounds", [False, True], ids=["all differ", "many are equal"])
@pytest.mark.parametrize(("name", "shape"), [*itertools.product(LARGEST, IMAGES)])
def test_gradients_of_the_largest(name: str, shape: str, rounds: bool) -> None:
    x = IMAGES[shape].round() if rounds else IMAGES[shape]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x * 2, **LARGEST[name]).sin()

    theirs, mine = (x.clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2))
    want, got = fn(theirs), dovetail.compile(fn, fullgraph=True)(mine)
    weight = torch.randn(want.shape).to(want.dtype)
    (want * weight).sum().backward()
    (got * weight).sum().backward()
    assert got.stride() == want.stride() and mine.grad.stride() == theirs.grad.stride()
    rounded_often = {"rtol": 0.02, "atol": 0.03} if x.dtype is torch.bfloat16 else {}
    torch.testing.assert_close(mine.grad, theirs.grad, **rounded_often)


def test_the_library_gets_planes_one_after_the_other() -> None:
    """With the channels last PyTorch's gradient on GPUs was wrong where there is padding."""
    g, x = image(2, 3, 8, 9), image(2, 3, 8, 9)
    fn = lambda g, x: torch.ops.aten.avg_pool2d_backward(g, x, [5, 5], [1, 1], [2, 2], False, True, None).sin()
    (call,) = (item for item in lowered(fn, g, x).items if isinstance(item, LibraryCall))
    assert [a.buffer.strides for a in call.args[:2]] == [(216, 72, 9, 1)] * 2
    torch.testing.assert_close(dovetail.compile(fn)(g, x), fn(g, x))


@pytest.mark.parametrize("name", ["halves", "only elements", "cut off, padded"])
def test_any_size(name: str) -> None:
    fn = lambda x: F.avg_pool2d(x * 2, **WINDOWS[name]) + 1
    ours = dovetail.compile(fn, dynamic=True)
    for sizes in ((2, 3, 4, 5), (1, 3, 7, 2), (3, 1, 3, 3), (2, 5, 9, 30)):
        torch.testing.assert_close(ours(image(*sizes)), fn(image(*sizes)))

"""Functions that take sizes, or compute with them on the way: two compilations serve any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dovetail

SIZES = ((6, 8), (8, 10), (9, 12), (10, 14), (7, 16), (12, 3))

FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a range downwards": lambda x: torch.arange(x.shape[0], -x.shape[0], -1.0) * 2,
    "a range in steps of two": lambda x: torch.arange(0, x.shape[0], 2.0) * 3,
    "a range in halves": lambda x: torch.arange(x.shape[1], 0, -0.5, dtype=torch.float64),
    "a range from a fraction": lambda x: torch.arange(0.5, x.shape[1]),
    "linspace": lambda x: torch.linspace(-1, 1, x.shape[0]) + torch.linspace(0.0, 3.0, x.shape[1])[:, None],
    "take_along_dim": lambda x: torch.take_along_dim(x, x.argsort(1), 1) + x.take_along_dim(x[:1].argsort(1), 1),
    "fill_diagonal_": lambda x: (x + 1).fill_diagonal_(3.0),
    "multi_dot": lambda x: torch.linalg.multi_dot([x, x.t(), x, x.t()]),
    "lines": lambda x: F.interpolate(x[None], size=x.shape[1] * 2, mode="linear"),
    "images": lambda x: F.interpolate(x[None, None], size=(x.shape[1], 5), mode="bilinear", align_corners=True),
    "volumes": lambda x: F.interpolate(x[None, None, ..., None], size=(3, x.shape[0] + 1, 2), mode="trilinear"),
    "np.prod as a size": lambda x: x.reshape(np.prod(x.shape)) * 2,
    "np.prod of some sizes": lambda x: x[None].view(-1, int(np.prod(x.shape[1:]))) + np.prod(x.shape, ),
    "np.prod and arithmetic": lambda x: x.expand(3, *x.shape).reshape(3 * np.prod(x.shape) // 3, -1) * 2,
    "np.sum, np.max and np.min": lambda x: x * np.sum(x.shape) + int(np.max(x.shape)) - np.min([*x.shape]),
    "np.sqrt": lambda x: x / np.sqrt(x.shape[0]) + x * (1 / np.sqrt(x.shape[1])),
    "np.ceil": lambda x: x[: int(np.ceil(x.shape[0] / 2))] * np.log(x.shape[1]),
    "np.int64": lambda x: x[:, : np.int64(x.shape[1]) // 2] + float(np.float64(x.shape[0])),
}  # fmt: skip


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_two_compilations_serve_any_size(name: str, backend: str, grad: bool) -> None:
    fn = FUNCTIONS[name]
    ours = dovetail.compile(fn, backend=backend, fullgraph=True)
    for rows, columns in SIZES:
        x = torch.randn(rows, columns, requires_grad=grad)
        found, wanted = ours(x), fn(x)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        if grad and wanted.requires_grad:
            parts = (torch.autograd.grad(y.square().sum(), x)[0] for y in (found, wanted))
            torch.testing.assert_close(*parts, rtol=1e-3, atol=1e-3)
    assert len(ours._dovetail_dispatcher.entries) == 2


RANGES = {
    "parts": (lambda x: torch.cat([x[k : k + 5] * (k + 1) for k in range(0, x.shape[0], 5)]), (11, 12, 15), (16, 20)),
    "from the second": (lambda x: [x[:k].sum() for k in range(2, x.shape[0], 4)], (7, 8, 10), (11, 14)),
    "none": (lambda x: [x[k] for k in range(x.shape[0], 6)], (6, 7, 12), (13, 9)),
    "to another size": (lambda x: [x[k] for k in range(x.shape[0] - 3, x.shape[0])], (7, 8, 12), (13, 9)),
    "with prints": (lambda x: [(print(end=""), x[k] + k)[1] for k in range(0, x.shape[0], 8)], (9, 12, 16), (10, 11)),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
@pytest.mark.parametrize("name", RANGES)
def test_a_loop_relies_on_how_often_it_runs(name: str, backend: str) -> None:
    fn, first, second = RANGES[name]
    ours = dovetail.compile(fn, backend=backend)
    for rows in (*first, *second):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(ours(x), fn(x))
    wanted = {"parts": 3, "from the second": 3}.get(name, 2)
    assert len(ours._dovetail_dispatcher.entries) == wanted


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
def test_breaks_in_such_a_loop(backend: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        total = x.sum()
        for start in range(0, x.shape[0], 4):
            total = total + x[start : start + 4].cumsum(0)[-1].sum() * float(total.detach() > start)
        for start in reversed(range(0, x.shape[0], 5)):
            total = total * 2 + x[start, 0] + len(range(x.shape[0]))
        return total

    ours = dovetail.compile(fn, backend=backend)
    for rows in (9, 10, 11, 12, 5, 13, 4):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(ours(x), fn(x))


def test_errors_are_eagers() -> None:
    for fn, words in (
        (lambda x: torch.arange(x.shape[0], 0, 1.0), "inconsistent with step sign"),
        (lambda x: torch.linspace(0, 1, x.shape[0] - 9), "number of steps must be non-negative"),
        (lambda x: torch.take_along_dim(x, torch.zeros(x.shape[0] + 2, 1, dtype=torch.long), 1), "must match"),
    ):
        with pytest.raises(RuntimeError, match=words):
            fn(torch.ones(4, 4))
        with pytest.raises(RuntimeError, match=words):
            dovetail.compile(fn, dynamic=True)(torch.ones(4, 4))


def test_numpy_numbers_stay_numpys() -> None:
    fn = lambda x: (np.prod(x.shape), np.sqrt(x.shape[0]), np.prod(x.shape) > 5, f"{np.prod(x.shape)}", x + 1)
    ours = dovetail.compile(fn, backend="eager")
    for rows, columns in SIZES:
        x = torch.randn(rows, columns)
        (*found, _), (*wanted, _) = ours(x), fn(x)
        assert found == wanted and list(map(type, found)) == list(map(type, wanted))
    assert len(ours._dovetail_dispatcher.entries) == 2

"""Libraries start while kernels are compiled, and nobody notices."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.runtime.gpu import graphs, warm_up

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def model(x, k, w):
    y = F.relu(F.conv2d(x, k, padding=1)).flatten(2).transpose(1, 2) @ w
    q = y.view(y.shape[0], -1, 4, 16).transpose(1, 2)
    return sum(F.scaled_dot_product_attention(q, q, q, dropout_p=p) for p in (0.0, 0.1))


@pytest.fixture
def rehearsed(monkeypatch):
    made, once = [], warm_up.once

    def noting(call):
        made.append(call.operator)
        once(call)

    monkeypatch.setattr(warm_up, "once", noting)
    return made


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
def test_surroundings_stay(rehearsed, mode, tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    given = [torch.randn(*s, device="cuda") for s in ((2, 8, 12, 12), (16, 8, 3, 3), (16, 64))]
    factor = len(mode)  # so that the kernels are not the other mode's: where none is compiled, nobody waits
    compiled = dovetail.compile(lambda *given: model(*given) * factor, mode=mode)
    compiled(*[g.requires_grad_() for g in given]).sum().backward()
    assert torch.is_grad_enabled() and torch.cuda.current_stream() == torch.cuda.default_stream()
    assert {operator._opname for operator in rehearsed} >= {"convolution", "convolution_backward"}


@pytest.mark.skipif(dovetail.config.check_kernels, reason="kernels that check themselves are not recorded")
@pytest.mark.parametrize("reads_a_size", [False, True])
def test_no_memory_for_a_stream_that_is_not_used(reads_a_size, tmp_path, monkeypatch):
    """In a thread that has called nothing of cuBLAS's: a program that waits for a size runs on the current stream."""
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    x, w = torch.randn(64, 32, device="cuda"), torch.randn(32, 32, device="cuda")

    taken = []
    monkeypatch.setattr(graphs, "_take_workspace", taken.append)

    def ready():
        chosen = (lambda x: x[x.sum(-1) > 0]) if reads_a_size else (lambda x: x)
        dovetail.compile(lambda x, w: ((chosen(x) @ w).exp() @ w).cos() @ w + 3, fullgraph=True)(x, w)
        return bool(taken)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(ready).result() != reads_a_size

"""Programs on a CUDA device against eager: several calls each, so that recordings are made and replayed."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dovetail
from dovetail.codegen.host import graph_segments
from dovetail.runtime.call import program
from dovetail.runtime.gpu import graphs as cuda_recordings
from dovetail.schedule.launch import cuda_graphs

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("small_programs_are_recorded"),
]


def _randn(*sizes, **kwargs):
    return torch.randn(*sizes, device="cuda", **kwargs)


def _chain(x):
    return torch.softmax(F.layer_norm(F.gelu(x) + torch.sin(x), x.shape[-1:]), -1)


def _begun_on_the_cpu(x):
    places = torch.arange(len(x))
    hidden = (places[None] > places[:, None]).to(x.device)
    x = x.masked_fill(hidden, torch.tensor(-torch.inf)) / torch.sqrt(torch.tensor(x.shape[-1]))
    return x.softmax(-1)[torch.tensor([0, 2, 5])] * torch.tensor([1.0, 2.0, 3.0]).to(x.device, x.dtype)[:, None]


CASES = {
    "pointwise": (lambda x: torch.cos(torch.cos(x)) + 1, (1000, 37)),
    "rows": (_chain, (64, 1000)),
    "long rows": (lambda x: torch.softmax(x, -1) + x.logsumexp(1, keepdim=True), (8, 50000)),
    "long rows of any length": (lambda x: (torch.log_softmax(x, -1)[:, 5], *torch.var_mean(x, -1)), (40, 50257)),
    "long columns": (lambda x: (torch.softmax(x, 0), x.var(0)), (20011, 70)),
    "batch norm": (lambda x: F.batch_norm(x.view(20, -1, 61, 61), None, None, training=True), (600, 3721)),
    "batch norm, channels last": (
        lambda x: F.batch_norm(x.view(20, 61, 61, -1).permute(0, 3, 1, 2), None, None, training=True), (1220, 1830)
    ),
    "rows that begin anywhere": (lambda x: (x.abs() + x[:, 1:2].exp()) * x[:, :1].sigmoid(), (300, 5003)),
    "padded": (lambda x: F.pad(x.view(30, -1, 31), (1, 2, 3, 1)).sin(), (30, 527)),
    "columns": (lambda x: (x.sum(0), x.var(0), x.amax(0)), (3000, 70)),
    "few results": (lambda x: (x.mean(), (x > 0).any(), x.amin()), (300, 5000)),
    "positions": (lambda x: (x.argmax(1), x.argmin(0)), (300, 500)),
    "transposed": (lambda x: x.t().contiguous() + 1, (700, 900)),
    "concatenated": (lambda x: torch.cat([x, x * 2, x[:, :3]], 1), (30, 500)),
    "elementary": (lambda x: (x.tanh(), x.erf(), x.abs().log1p(), x.expm1(), x.atan(), x.sinh()), (5000,)),
    "gathered": (lambda x: x[torch.arange(7, device="cuda") * 3].sum(1), (30, 64)),
    "made larger": (lambda x: F.interpolate(x.view(2, 8, 15, -1), scale_factor=2.0).sin(), (30, 64)),
    "made larger, channels last": (
        lambda x: F.interpolate(x.view(2, 15, -1, 8).permute(0, 3, 1, 2), scale_factor=4.0).sin(), (30, 64),
    ),
    "averages": (
        lambda x: F.avg_pool2d(x.view(2, 8, 15, -1), 3, 2, 1, ceil_mode=True, count_include_pad=False).sin(), (30, 64)
    ),
    "averages, channels last": (
        lambda x: F.avg_pool2d(x.view(2, 15, -1, 8).permute(0, 3, 1, 2), 2) + 1, (30, 64),
    ),
    "begun on the CPU": (_begun_on_the_cpu, (64, 64)),
    "products": (lambda x: F.relu(x @ x.t()) + 1, (64, 128)),
    "empty": (lambda x: (x[:0] + 1, x[:0].sum(0)), (4, 5)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_calls_in_a_row(name, dtype):
    fn, sizes = CASES[name]
    compiled = dovetail.compile(fn)
    for _ in range(4):
        x = _randn(*sizes).to(dtype)
        tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(compiled(x), fn(x), **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_convolutions_and_what_follows(dtype):
    """Batch norms and biases become part of what runs before or after; weights that change are seen."""
    layers = [
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 8, 1, bias=False), nn.BatchNorm2d(8, affine=False), nn.ReLU(),
        nn.Conv2d(8, 8, 7, padding=3, groups=8), nn.GELU(), nn.ConvTranspose2d(8, 4, 2, stride=2),
    ]  # fmt: skip
    model = nn.Sequential(*layers).cuda().to(dtype)
    for norm in (layers[1], layers[4]):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    model.eval()
    compiled = dovetail.compile(model)
    with torch.no_grad():
        for k in range(5):
            x = _randn(2, 3, 64, 64).to(dtype)
            if k % 2:
                layers[0].weight.mul_(1.5)
                layers[1].running_mean.add_(1)
            torch.testing.assert_close(compiled(x), model(x), rtol=2e-2, atol=2e-2)


def test_results_that_are_kept():
    """What a call returned is not overwritten by later calls."""
    compiled = dovetail.compile(lambda x: x * 2)
    inputs = [_randn(100) for _ in range(6)]
    kept = [compiled(x) for x in inputs]
    for x, y in zip(inputs, kept, strict=True):
        torch.testing.assert_close(y, x * 2)


def test_a_result_that_is_held_until_the_next():
    """The program is recorded anew, with a copy of the result; inputs that move meanwhile are followed."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64)).cuda()
    compiled, held, moving = dovetail.compile(model), None, []
    with torch.no_grad():
        for k in range(12):
            x = _randn(33, 64)
            if k > 5:
                moving.append(x)
            before = None if held is None else held.clone()
            found = compiled(x)
            torch.testing.assert_close(found, model(x))
            if held is not None:
                torch.testing.assert_close(held, before, rtol=0, atol=0)
            held = found


def test_big_results_are_never_held_twice():
    """A program whose results callers keep takes no more memory than they do."""
    compiled, size = dovetail.compile(lambda x: x.sin() + 1), 1 << 22
    x = _randn(size)
    compiled(x), compiled(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    kept = [compiled(x) for _ in range(10)]
    assert torch.cuda.memory_allocated() - before <= 10 * 4 * size
    for y in kept:
        torch.testing.assert_close(y, x.sin() + 1)


def test_an_activation_takes_no_second_block(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "FEWEST", 1 << 30)
    w, v, x = _randn(64, 4096), _randn(4096, 64), _randn(2048, 64)
    compiled = dovetail.compile(lambda x: F.gelu(x @ w) @ v)
    compiled(x), compiled(x)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    compiled(x)
    assert torch.cuda.max_memory_allocated() - before < 1.5 * 4 * 2048 * 4096


def _normed(x, w):
    y = x @ w
    return F.layer_norm(y, y.shape[-1:]) @ w.t() + y.mean()


#: Kernels between products, which may write over what they read.
OVER = {
    "softmax": lambda x, w: torch.softmax(x @ w, -1) @ w.t(),
    "two results": lambda x, w: ((y := x @ w).sin(), y.cos() @ w.t()),
    "rows and their sums": lambda x, w: ((y := torch.log_softmax(x @ w, -1)) @ w.t(), y.sum(-1)),
    "a residual": lambda x, w: F.gelu(x @ w) @ w.t() + x,
    "transposed": lambda x, w: (x @ w).t().exp() @ x,
    "reversed": lambda x, w: (x @ w).flip(-1) @ w.t(),
    "read twice": _normed,
}


@pytest.mark.parametrize("name", OVER)
@pytest.mark.parametrize("rows, inner", [(5, 7), (64, 33), (300, 1000), (3, 20000)])
def test_results_over_inputs(name, rows, inner):
    compiled, w = dovetail.compile(OVER[name]), _randn(16, inner) / 16
    for _ in range(4):
        x = _randn(rows, 16)
        torch.testing.assert_close(compiled(x, w), OVER[name](x, w), rtol=1e-4, atol=1e-3)


def test_no_more_memory_than_eager():
    """What libraries take for a stream is taken once."""
    found = []
    for compiler in ("", "compiled = dovetail.compile(model)"):
        code = f"""
            import torch, dovetail
            compiled = model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(9)]).cuda()
            {compiler}
            x = torch.randn(64, 256, device="cuda")
            with torch.no_grad():
                for _ in range(4):
                    compiled(x)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            with torch.no_grad():
                compiled(x)
            print(torch.cuda.max_memory_reserved())"""
        run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
        found.append(int(run.stdout))
    assert found[1] <= found[0] + (8 << 20)


def test_what_begins_on_the_cpu_is_recorded(monkeypatch):
    replayed, replay = [], cuda_recordings.Recorder.replay
    monkeypatch.setattr(cuda_recordings.Recorder, "replay", lambda *args: replayed.append(0) or replay(*args))
    compiled, x = dovetail.compile(_begun_on_the_cpu, fullgraph=True), _randn(64, 64)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), _begun_on_the_cpu(x))
    assert len(replayed) == 2


def test_results_outlive_the_program():
    """What is left of a program that is gone stays, though memory that nobody uses is given back."""
    x, held = _randn(512, 512), []
    for number in range(4):
        compiled = dovetail.compile(lambda x, number=number: (x * number).sin())
        for _ in range(3):
            found = compiled(x)
        held.append(found)
        del compiled, found
        dovetail.reset()
        gc.collect()
        torch.cuda.empty_cache()
    others = [torch.full((512, 512), 7.0, device="cuda") for _ in range(16)]
    for number, found in enumerate(held):
        torch.testing.assert_close(found, (x * number).sin())
    assert all(bool((other == 7).all()) for other in others)


@pytest.mark.parametrize("pool", [F.avg_pool2d, F.max_pool2d], ids=["average", "largest"])
def test_gradients_of_pools(pool):
    """PyTorch's own of padded averages with the channels last are wrong in some versions; those of planes are not."""
    compiled = dovetail.compile(lambda x, n, step: pool(x * 2, n, step, n // 2))
    for size, step in ((3, 1), (3, 2), (5, 1)):
        for layout in (torch.contiguous_format, torch.channels_last):
            x = _randn(2, 8, 14, 15).contiguous(memory_format=layout).requires_grad_()
            planes = x.detach().contiguous().requires_grad_()
            want, got = pool(planes * 2, size, step, size // 2), compiled(x, size, step)
            weight = torch.randn_like(want)
            (got * weight).sum().backward()
            (want * weight).sum().backward()
            torch.testing.assert_close(x.grad, planes.grad)


@pytest.mark.parametrize("before", ["", "the first call", "recording"])
@pytest.mark.parametrize("rows, wide, kind", [(256, 512, "float32"), (16, 4096, "float32"), (16, 4096, "bfloat16")])
def test_when_cublas_lets_go_of_its_memory(before, rows, wide, kind):
    """As torch.compile has it do: a recording goes on to use what it took, in a process that has recorded others. Of a
    few rows long sums are split, whose parts lie in that memory."""
    dtype = getattr(torch, kind)
    layers = [torch.nn.Linear(wide, 128), *(torch.nn.Linear(128, 128) for _ in range(4))]
    earlier, model = (torch.nn.Sequential(*copy.deepcopy(layers)).to("cuda", dtype) for _ in range(2))
    compiled, other, x = dovetail.compile(model), dovetail.compile(earlier), _randn(rows, wide).to(dtype)
    with torch.no_grad():
        for _ in range(3):
            other(x)
        if before == "recording":
            compiled(x)
        if before:
            torch._C._cuda_clearCublasWorkspaces()
        wanted = model(x)
        for _ in range(3):
            compiled(x)
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        others = [torch.zeros(1 << 18, device="cuda") for _ in range(64)]
        for _ in range(3):
            torch.testing.assert_close(compiled(x), wanted, rtol=1e-2, atol=1e-2)
        assert not any(other.any() for other in others)


@pytest.mark.parametrize("inner", [False, True])
def test_values_that_a_recording_looks_at(inner, capsys):
    """It raises where eager mode does, and goes on afterwards."""

    def fn(x, w):
        y = torch.softmax(x @ w, -1)
        torch._check_tensor_all((y >= 0) & (x[:, :1] < 50), lambda: "too large")
        y = (y @ w).relu()
        if inner:
            torch._assert_async((y < 1e6).all(), "far too large")
        return F.layer_norm(y, y.shape[-1:]) + x

    compiled, w = dovetail.compile(fn, fullgraph=True), _randn(64, 64)
    dovetail.set_logs(perf_hints=True)
    for number in range(8):
        x = _randn(32, 64) + (100 if number in (4, 6) else 0)
        if number in (4, 6):
            with pytest.raises(RuntimeError, match="too large"):
                compiled(x, w)
        else:
            torch.testing.assert_close(compiled(x, w), fn(x, w))
    dovetail.set_logs()
    assert "no CUDA graph" not in capsys.readouterr().err


def test_what_depends_on_no_size_that_is_found_out_is_recorded(capsys):
    """Here a number is looked at, and that is all."""

    def fn(x, w, lengths):
        y = torch.softmax(x @ w, -1)
        torch._check(lengths.max().item() <= 32)
        return F.layer_norm((y @ w).relu(), y.shape[-1:]) + x

    compiled, w = dovetail.compile(fn, fullgraph=True), _randn(64, 64)
    dovetail.set_logs(perf_hints=True)
    for number in range(8):
        x, lengths = _randn(32, 64), torch.tensor([3, 33 if number == 5 else 20 + number], device="cuda")
        if number == 5:
            with pytest.raises(RuntimeError):
                compiled(x, w, lengths)
        else:
            torch.testing.assert_close(compiled(x, w, lengths), fn(x, w, lengths))
    dovetail.set_logs()
    assert "no CUDA graph" not in capsys.readouterr().err


def test_a_thread_that_is_new_to_cuda(monkeypatch):
    """The driver knows no context there; PyTorch's allocator does not ask it."""
    monkeypatch.setattr(cuda_graphs, "FEWEST", 1 << 30)
    compiled, x, found = dovetail.compile(lambda x: x.sin() + 1), _randn(100), []
    compiled(x)
    thread = threading.Thread(target=lambda: found.append(compiled(x)))
    thread.start()
    thread.join()
    torch.testing.assert_close(found[0], x.sin() + 1)


def test_recordings_of_several_graphs(monkeypatch):
    """What is in memory at a cut, and random numbers on both sides of it."""
    monkeypatch.setattr(graph_segments, "FIRST", 2)
    monkeypatch.setattr(graph_segments, "GROWTH", 1)

    def fn(x, w):
        kept = []
        for _ in range(6):
            x = F.dropout(torch.softmax(x @ w, -1), 0.5) * 2 + x
            kept.append(x)
        return sum(kept), kept[0], kept[3]

    def run(mode):
        torch.manual_seed(0)
        compiled = dovetail.compile(fn, mode=mode)
        return [[result.clone() for result in compiled(x + k, w)] for k in range(7)]

    x, w = _randn(64, 64), _randn(64, 64)
    recorded, plain = run("default"), run("max-autotune-no-cudagraphs")
    torch.testing.assert_close(recorded, plain)
    assert not torch.equal(recorded[-1][1] - x, recorded[-2][1] - x + 1)


def test_streams_that_change():
    """A replay waits for those who still read the last one's results."""
    compiled = dovetail.compile(lambda x: torch.softmax(x @ x, 1) @ x)
    x, held = _randn(512, 512), []
    wanted = torch.softmax(x @ x, 1) @ x
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for k in range(20):
        stream = streams[k % 2]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            held = [*held[-1:], (compiled(x), stream)]
        for found, _ in held:
            torch.cuda.synchronize()
            torch.testing.assert_close(found, wanted)


def test_random_numbers_of_eager():
    """Each replay draws new ones; a seed gives eager's."""
    compiled = dovetail.compile(lambda x: F.dropout(x, 0.5), options={"fallback_random": True})
    x = torch.ones(1000, device="cuda")
    for seed in range(4):
        torch.manual_seed(seed)
        got = compiled(x).clone()
        torch.manual_seed(seed)
        torch.testing.assert_close(got, F.dropout(x, 0.5))
    assert not torch.equal(compiled(x).clone(), compiled(x))


def test_writes_to_inputs():
    compiled = dovetail.compile(lambda x: x.add_(1).mul_(2))
    x, y = torch.zeros(10, device="cuda"), torch.zeros(10, device="cuda")
    for k in range(5):
        before = x._version
        compiled(x)
        y.add_(1).mul_(2)
        torch.testing.assert_close(x, y)
        assert x._version > before, k
    z = torch.zeros(10, device="cuda")  # elsewhere
    compiled(z)
    torch.testing.assert_close(z, torch.full_like(z, 2))


@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("whole", [False, True], ids=["model", "step"])
def test_training(capturable, whole):
    """Losses of ten steps, BatchNorm's statistics and accumulated gradients included."""
    def run(compiler):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
            torch.nn.Linear(8 * 6 * 6, 5),
        ).cuda()  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, capturable=capturable)
        forward = model if whole else compiler(model)

        def step(x, y):
            optimizer.zero_grad()
            F.cross_entropy(forward(x), y).backward()
            loss = F.cross_entropy(forward(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = compiler(step) if whole else step
        x, y = torch.randn(16, 3, 8, 8).cuda(), torch.randint(0, 5, (16,)).cuda()
        return [step(x, y).item() for _ in range(10)]

    torch.testing.assert_close(run(dovetail.compile), run(lambda fn: fn), rtol=1e-3, atol=1e-4)


def test_two_forward_passes_before_a_backward():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).cuda()
    compiled = dovetail.compile(model)
    for _ in range(4):
        x, y = _randn(5, 8), _randn(5, 8)
        first, second = compiled(x).sum(), compiled(y).sum()
        got = torch.autograd.grad(first + second, list(model.parameters()))
        want = torch.autograd.grad(model(x).sum() + model(y).sum(), list(model.parameters()))
        torch.testing.assert_close(got, want)


def test_addresses_at_no_multiple_of_sixteen():
    compiled, x = dovetail.compile(lambda x: x.sin() + 1), _randn(1001)
    for start in (0, 1, 2, 1, 0):
        torch.testing.assert_close(compiled(x[start:]), x[start:].sin() + 1)


class _Residual(torch.nn.Module):
    """Convolutions of all kinds, each followed by something that keeps the layout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 7, stride=2, padding=3)
        self.narrow = torch.nn.Conv2d(16, 8, 1, bias=False)
        self.each = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.wide = torch.nn.Conv2d(8, 16, 3, padding=1)
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(n) for n in (16, 8, 16))

    def forward(self, x):
        x = F.max_pool2d(self.norms[0](self.first(x)).relu(), 3, 2, 1)
        y = self.each(self.norms[1](self.narrow(x)).relu())
        return F.adaptive_avg_pool2d((x + self.norms[2](self.wide(y))).relu(), 1).flatten(1)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layouts_of_convolutions(train, dtype, monkeypatch):
    """What libraries return is laid out as predicted; otherwise it would be copied in each call."""
    copied, expected = [], program.expect_layout

    def watched(tensor, sizes, strides, operator):
        found = expected(tensor, sizes, strides, operator)
        copied.extend([] if found is tensor else [operator])
        return found

    monkeypatch.setattr(program, "expect_layout", watched)
    model = _Residual().cuda().to(dtype).train(train)
    reference = copy.deepcopy(model)
    compiled, x = dovetail.compile(model), _randn(4, 3, 64, 64, dtype=dtype)
    for _ in range(2):
        found, wanted = (fn(x) for fn in (compiled, reference))
        torch.testing.assert_close(found, wanted, rtol=3e-2, atol=3e-2)
        if train:
            found.sum().backward()
            wanted.sum().backward()
    assert not copied
    if train:
        for ours, eager in zip(model.parameters(), reference.parameters(), strict=True):
            assert ours.grad.stride() == eager.grad.stride()


class _Depthwise(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, 2, 1)
        self.each = nn.Sequential(*(
            nn.Sequential(nn.Conv2d(width, width, k, s, k // 2, groups=width), nn.BatchNorm2d(width), nn.SiLU())
            for k, s in ((3, 1), (5, 2), (7, 1), (3, 2))
        ))  # fmt: skip
        self.line = nn.Conv1d(width, width, 4, padding=3, groups=width)

    def forward(self, x):
        x = self.each(self.first(x))
        return self.line(x.flatten(2)).mean(-1)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_convolutions_of_each_channel(last, dtype):
    model = _Depthwise().cuda().to(dtype)
    exact = copy.deepcopy(model).double()
    x = _randn(4, 3, 90, 62, dtype=dtype)
    x = x.to(memory_format=torch.channels_last) if last else x
    compiled = dovetail.compile(model)
    for _ in range(4):
        model.zero_grad()
        found = compiled(x)
        found.sum().backward()
    for _ in range(4):
        exact.zero_grad()
        wanted = exact(x.double())
        wanted.sum().backward()
    tolerance = {torch.float32: 2e-3, torch.bfloat16: 1e-1}[dtype]  # the first one rounds to TF32
    pairs = [(found, wanted), *((p.grad, q.grad) for p, q in zip(model.parameters(), exact.parameters(), strict=True))]
    for k, (ours, true) in enumerate(pairs):
        scale = max(true.abs().max().item(), 1e-2 * max(q.grad.abs().max().item() for q in exact.parameters()))
        assert (ours.double() - true).abs().max().item() <= tolerance * scale, k


def test_weights_without_rounding():
    """`numerics="eager"` lets convolutions compute as eager's do."""
    model, x = torch.nn.Conv2d(8, 8, 3).cuda(), _randn(2, 8, 32, 32)
    assert torch.equal(dovetail.compile(model, options={"numerics": "eager"})(x), model(x))


def test_a_program_on_the_cpu_does_not_use_the_device(tmp_path):
    """Nor do processes that are forked from one that does, which cannot."""
    code = """
        import os, torch, dovetail
        x = torch.randn(9, 9, requires_grad=True)
        dovetail.compile(lambda x: (x @ x).sin().sum())(x).backward()
        print(torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork())
        torch.ones(1, device="cuda")
        child = os.fork()
        if child == 0:
            dovetail.config.strict = True
            y = dovetail.compile(lambda x: (x @ x).cos().sum())(x)  # backward: PyTorch refuses in such a process
            os._exit(7 if y.requires_grad else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"""
    environment = {**os.environ, "DOVETAIL_CACHE_DIR": str(tmp_path)}
    arguments = [sys.executable, "-c", textwrap.dedent(code)]
    run = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.split() == ["False", "False", "7"]

"""`flex_attention`: is it right, how long does it take, and how much memory.

    python -m benchmarks.flex                         # 1x8x2048x64 float32, forward, on the CPU
    python -m benchmarks.flex --device cuda --peer    # 4x16x4096x64 bfloat16, both passes, beside torch.compile
    python -m benchmarks.flex --device cuda --case documents --width 96

`window` is ALiBi in a causal window; `documents` several of different lengths a sequence, causal, where a tensor says
which word belongs to which; `lengths` sequences that are padded; `relative` a table of learned numbers by the distance;
`capped` sees everything, by scores that a tanh keeps small; `written` is causal attention as products with a softmax in
between.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from . import measure

SIZES = {"cpu": (1, 8, 2048, 64), "cuda": (4, 16, 4096, 64)}
DTYPES = {"cpu": torch.float32, "cuda": torch.bfloat16}
CASES = ["window", "documents", "lengths", "relative", "capped", "written"]
WINDOWS = {"cpu": 256, "cuda": 512}


def program(device: str, sizes: tuple[int, ...], window: int, case: str = "window") -> Callable[..., torch.Tensor]:
    batch, heads, rows, _ = sizes
    slopes = 2.0 ** -torch.linspace(1, 8, heads, device=device)
    documents = (torch.rand(batch, rows, device=device) < 8 / rows).cumsum(1)
    lengths = torch.linspace(0.3, 1, batch, device=device).mul(rows).long()

    def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i >= j

    masks: dict[str, Callable[..., Any]] = {
        "window": lambda b, h, i, j: (i >= j) & (i - j < window),
        "documents": lambda b, h, i, j: (i >= j) & (documents[b, i] == documents[b, j]),
        "lengths": lambda b, h, i, j: j < lengths[b],
    }
    shown = masks.get(case, causal)
    mask = None if case == "capped" else create_block_mask(shown, batch, None, rows, rows, device=device)

    def alibi(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score + slopes[h] * (j - i)

    def capped(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return 20 * torch.tanh(score / 20)

    changed = {"window": alibi, "capped": capped}.get(case)

    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *relative: torch.Tensor) -> torch.Tensor:
        def learned(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return score + relative[0][h, i - j + rows]

        return flex_attention(q, k, v, learned if relative else changed, mask)

    return fn


def written(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.transpose(-2, -1) * q.shape[3] ** -0.5).masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ v


def passes(fn: Callable[..., torch.Tensor], tensors: list[torch.Tensor], trained: bool) -> Callable[[], Any]:
    """A forward pass, or both with a gradient of ones."""
    if not trained:
        return lambda: fn(*tensors)
    ones = torch.ones_like(tensors[0])
    return lambda: torch.autograd.grad(fn(*tensors), tensors, ones)


def error(got: Any, wanted: Any) -> float:
    """The largest, relative to the largest number."""
    pairs = zip(*((t,) if isinstance(t, torch.Tensor) else t for t in (got, wanted)), strict=True)
    return max(float((a.double() - b.double()).abs().max() / b.double().abs().max()) for a, b in pairs)


def peak(call: Callable[[], Any]) -> str:
    """MiB of the GPU that the call takes beyond what is held."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return f"{(torch.cuda.max_memory_allocated() - held) / 2**20:.0f} MiB"


def inputs(device: str, sizes: tuple[int, ...], dtype: torch.dtype, case: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    tensors = [torch.randn(sizes, device=device, dtype=dtype) for _ in range(3)]
    return [*tensors, torch.randn(sizes[1], 2 * sizes[2], device=device)] if case == "relative" else tensors


def report(
    device: str, tensors: list[torch.Tensor], fns: dict[str, Callable[..., torch.Tensor]], trained: bool, rounds: int
) -> None:
    tensors = [t.requires_grad_(trained) for t in tensors]
    calls = {name: passes(fn, tensors, trained) for name, fn in fns.items()}
    wanted = calls["eager"]()
    errors = {name: error(call(), wanted) for name, call in calls.items()}
    del wanted
    waited = {name: _waiting(call, device) for name, call in calls.items()}
    times = dict(zip(calls, measure.interleaved(list(waited.values()), rounds), strict=True))
    for name, call in calls.items():
        memory = peak(call) if device == "cuda" else ""
        what = "both passes" if trained else "forward"
        print(f"{what:12} {name:14} {median(times[name]) * 1e3:9.3f} ms  differs by {errors[name]:.1e}  {memory}")


def _waiting(call: Callable[[], Any], device: str) -> Callable[[], Any]:
    def waited() -> None:
        call()
        torch.cuda.synchronize()

    return waited if device == "cuda" else call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=list(SIZES), default="cpu")
    parser.add_argument("--case", choices=CASES, default="window")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], help="of query, key and value")
    parser.add_argument("--peer", action="store_true", help="beside torch.compile")
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    sizes = (*SIZES[chosen.device][:3], chosen.width)
    dtype = getattr(torch, chosen.dtype) if chosen.dtype else DTYPES[chosen.device]
    fn = written if chosen.case == "written" else program(chosen.device, sizes, WINDOWS[chosen.device], chosen.case)
    fns = {"eager": fn, "dovetail": importlib.import_module("dovetail").compile(fn, fullgraph=True)}
    if chosen.peer:
        fns["torch.compile"] = torch.compile(fn, fullgraph=True)
    for trained in (False, True) if chosen.device == "cuda" else (False,):
        report(chosen.device, inputs(chosen.device, sizes, dtype, chosen.case), fns, trained, chosen.rounds)


if __name__ == "__main__":
    main()

"""One compilation, many sizes: results are eager's at 0, 1 and any other, and nothing is relied on without need."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.symbolic.building import Built

R = torch.randn
SIZES = ((1, 7), (0, 3), (1, 1), (2, 1), (9, 5), (3, 0), (5, 16))


def shaped(spec: str, b: int, t: int) -> torch.Tensor:
    """A tensor whose sizes are written as `b t 8`."""
    sizes = [{"b": b, "t": t}.get(word) if word in "bt" else int(word) for word in spec.split()]
    return R(sizes)


#: function, specifications of its tensors
CASES: dict[str, tuple[Any, ...]] = {
    "pointwise": (lambda x: (x * 2 + 1).sin(), "b 8"),
    "broadcast a row": (lambda x, y: x + y, "b 8", "8"),
    "broadcast inside": (lambda x, y: x * y + 1, "b t 8", "b 1 8"),
    "mm": (lambda x, y: x @ y, "b 8", "8 5"),
    "linear": (lambda x, w, b: F.linear(x, w, b).relu(), "b t 8", "5 8", "5"),
    "reshape": (lambda x: (x.reshape(x.shape[0] * x.shape[1], 8) * 2).reshape(x.shape[0], x.shape[1] * 8), "b t 8"),
    "flatten": (lambda x: x.flatten(0, 1).sum(0), "b t 8"),
    "softmax of rows": (lambda x: x.softmax(-1), "b t 8"),
    "softmax of columns": (lambda x: x.softmax(1), "b t 8"),
    "softmax of what is transposed": (lambda x: x.transpose(1, 2).softmax(-1), "b t 8"),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (8,), w, b), "b t 8", "8", "8"),
    "sums": (lambda x: (x.sum(), x.sum(0), x.sum(1), x.sum(2), x.mean(1)), "b t 8"),
    "cat": (lambda x, y: torch.cat([x, y, x], 1), "b t 8", "b 1 8"),
    "slices": (lambda x: (x[:, 1:] * 2, x[:, :-1] + 1, x[..., 2:4].sin()), "b t 8"),
    "contiguous": (lambda x: x.transpose(1, 2).contiguous() * 2, "b t 8"),
    "permute": (lambda x: x.permute(1, 2, 0).cos(), "b t 8"),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), "b 2 t 4", "b 2 t 4", "b 2 t 4",
    ),
    "attention written out": (
        lambda q, k, v: ((q @ k.transpose(-1, -2)) / 2).softmax(-1) @ v, "b 2 t 4", "b 2 t 4", "b 2 t 4",
    ),
    "heads": (
        lambda x: (x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2) * 2).transpose(1, 2).reshape(x.shape), "b t 8",
    ),
    "triangle": (lambda x: torch.ones((x.shape[1], x.shape[1])).tril() + x[:, :, :1], "b t 8"),
    "positions": (lambda x, e: F.embedding(torch.arange(x.shape[1]), e) + x, "b t 8", "100 8"),
    "pad": (lambda x: F.pad(x, (1, 1, 2, 0)), "b t 8"),
    "sizes as numbers": (lambda x: x * x.shape[0] + x.shape[1], "b t 8"),
    "repeat": (lambda x: x.repeat(2, 1, 3), "b t 8"),
    "stack": (lambda x: torch.stack([x, x + 1], 1), "b t 8"),
    "cumsum": (lambda x: x.cumsum(1) + 1, "b t 8"),
    "flip": (lambda x: x.flip(1) + 1, "b t 8"),
    "largest of rows": (lambda x: x.amax(-1) + x.max(2).values, "b t 8"),
    "a write to a part": (lambda x: (y := x * 2, y[1:].add_(1), y)[2], "b t 8"),
    "a norm of symbolic extents": (lambda x: F.layer_norm(x, x.shape[1:]), "b t 8"),
    "expanded and rolled": (lambda x: x.roll(1, 1)[:, None].expand(x.shape[0], 3, x.shape[1], 8) + x[:, None], "b t 8"),
    "windows": (lambda x: F.pad(x, (1, 1)).unfold(2, 3, 1).sum(-1), "b t 8"),
    "views as results": (lambda x: (x.view(-1, 4), x.reshape(-1)), "b t 8"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_no_size_is_relied_on(case: str) -> None:
    fn, *specs = CASES[case]
    built = Built(fn, tuple(shaped(spec, 4, 6) for spec in specs), *specs)
    assert built.facts == []
    for b, t in ((4, 6), *SIZES):
        compare(built, fn, [shaped(spec, b, t) for spec in specs])


def compare(built: Built, fn: Any, args: Any) -> None:
    with torch.no_grad():
        got, wanted = built.call(*args), fn(*args)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    torch.testing.assert_close(tuple(got), wanted, equal_nan=True)
    assert [tuple(g.shape) for g in got] == [tuple(w.shape) for w in wanted]


#: function, specification, the facts, sizes that they allow and sizes that they do not
RELIED: dict[str, tuple[Any, ...]] = {
    "the largest of a dimension": (lambda x: x.amax(1), "b t 8", ["t >= 1"], (0, 1), (3, 0)),
    "the last position": (lambda x: x[:, -1] * 2, "b t 8", ["t >= 1"], (0, 1), (3, 0)),
    "two parts": (lambda x: x.chunk(2, 1)[-1] * 2, "b t 8", ["t >= ((t + 1) // 2) + 1"], (0, 7), (3, 1)),
    "parts of three": (lambda x: x.split(3, 1)[-1] * 2, "b t 8", ["t <= 6", "t >= 4"], (0, 5), (3, 7)),
    "squeeze": (lambda x: x.squeeze(1) + 1, "b t 8", ["t != 1"], (1, 0), (2, 1)),
    "at most one, repeated": (lambda x: x[None].diagonal() * x.sum((1, 2)), "b t 8", ["b >= 1"], (3, 5), (0, 5)),
    "a row of the last part, repeated": (
        lambda x: (y := x.chunk(3, 1)[-1].flatten(1, 2), y + y[:, :1])[1], "b t 8", ["t >= 2*((t + 2) // 3) + 1"],
        (0, 9), (3, 4),
    ),
    "as many parts as there are rows": (
        lambda x: (y := x.split(1)[-1], y * y.transpose(0, 1))[1], "b t 8", ["b <= 4", "b >= 4", "b == 4"],
        (4, 8), (5, 6),
    ),
    "what is repeated": (lambda x: x[:, :1].expand(x.shape[0], x.shape[1], 8) + x, "b t 8", ["t >= 1"], (0, 1), (1, 0)),
}  # fmt: skip


@pytest.mark.parametrize("case", RELIED)
def test_what_results_depend_on_is_relied_on(case: str) -> None:
    fn, spec, facts, allowed, refused = RELIED[case]
    built = Built(fn, (shaped(spec, 4, 6),), spec)
    assert built.facts == facts
    assert built.holds(b=allowed[0], t=allowed[1]) and not built.holds(b=refused[0], t=refused[1])
    compare(built, fn, [shaped(spec, *allowed)])


@pytest.mark.parametrize(("mode", "factor"), [("nearest", 2), ("nearest", 0.5), ("bilinear", 1.5), ("bicubic", 2.0)])
def test_images_of_other_sizes(mode: str, factor: float) -> None:
    def resized(x: Any) -> Any:
        return F.interpolate(x, scale_factor=factor, mode=mode) * 2

    built = Built(resized, (R(2, 3, 4, 6),), "n 3 b t")
    assert built.holds(n=1, b=2, t=3) and built.holds(n=5, b=9, t=7)
    for n, b, t in ((2, 4, 6), (1, 2, 3), (5, 9, 7), (3, 17, 4)):
        compare(built, resized, [R(n, 3, b, t)])


class Block(torch.nn.Module):
    """A transformer's, with its parameters as arguments."""

    names = ("qkv", "out", "up", "down")

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, x: Any, qkv: Any, out: Any, up: Any, down: Any) -> Any:
        batch, length = x.shape[0], x.shape[1]
        parts = F.linear(F.layer_norm(x, (16,)), qkv).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        if self.fused:
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            hidden = torch.ones((length, length)).tril() == 0
            seen = (q @ k.transpose(-1, -2) / 3).masked_fill(hidden, float("-inf")).softmax(-1) @ v
        x = x + F.linear(seen.transpose(1, 2).reshape(batch, length, 16), out)
        return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (16,)), up)), down)


def weights() -> list[torch.Tensor]:
    return [(R(size) / 4).requires_grad_() for size in ((48, 16), (16, 16), (64, 16), (16, 64))]


@pytest.mark.parametrize("fused", (False, True))
def test_training_step_of_a_block(fused: bool) -> None:
    model, parameters = Block(fused), weights()
    built = Built(model, (R(3, 10, 16).requires_grad_(), *parameters), "b t 16", grad=True)
    for b, t in ((3, 10), (1, 1), (2, 5), (0, 4), (2, 0), (5, 33)):
        if not built.holds(b=b, t=t):
            continue
        x = R(b, t, 16).requires_grad_()
        (got,), wanted = built.call(x, *parameters), model(x, *parameters)
        torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)
        tangent = R(b, t, 16)
        gradients = [torch.autograd.grad(y, [x, *parameters], tangent) for y in (got, wanted)]
        torch.testing.assert_close(*gradients, atol=1e-3, rtol=1e-3)

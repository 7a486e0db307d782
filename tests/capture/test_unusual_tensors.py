"""Sparse, quantized and oneDNN's tensors: what computes with them runs between graphs, and the rest is compiled."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import dovetail
from tests.autograd.comparing import alike, outcome

pytestmark = pytest.mark.filterwarnings("ignore:.*(Sparse CSR|quantized tensor creation|TF32).*")

KINDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "coo": torch.Tensor.to_sparse,
    "csr": torch.Tensor.to_sparse_csr,
    "mkldnn": torch.Tensor.to_mkldnn,
    "quantized": lambda t: torch.quantize_per_tensor(t, 0.25, 0, torch.qint8),
}

#: Expressions of `a`, one of these tensors, and the plain `x`.
ANY = """
    a
    [a, x.sin()][x.shape[0] > 1]
    {"a": [a], "x": x * 2}
    isinstance(a, torch.Tensor), torch.is_tensor(a), a is a, a is x, type(a), a.layout, a.dtype, a.device, a.ndim
    a.shape, a.size(0), a.dim(), a.requires_grad, a.is_sparse, a.is_quantized, a.is_mkldnn
    hasattr(a, "absent"), getattr(a, "absent", 3)
    plain(a) + x.cos()
    plain(a.clone()) * 2
    plain(unusual(x.sin() + 1)).exp()
    box.keep(a), x.cos()
    setattr(a, "note", 3), a.note, x * 2
    [plain(t) if t.layout is not torch.strided or t.is_quantized else t * 2 for t in (a, x)]
    box(x)
    {a: x.sin()}[a]
""".strip().splitlines()
MORE = {
    "sparse": """
    a @ x.sin()
    torch.mm(a, x).cos()
    torch.sparse.mm(a, x.relu()).sum()
    plain(a * 2) + x
    plain(a.t()) @ x
    a.values().sum() * x.sin(), a.values().shape
    a + a
    (x.sin() @ plain(a)).softmax(0)
    """.strip().splitlines(),
    "quantized": """
    a.int_repr().sum() + x, a.q_scale(), a.q_zero_point()
    torch.quantize_per_tensor(x.sin(), 0.1, 0, torch.qint8)
    torch.quantize_per_tensor(x.sin(), 0.1, 0, torch.qint8).clone().view(-1)[1:].int_repr(), x * 2
    torch.quantize_per_channel(x.sin(), torch.ones(3), torch.zeros(3), 0, torch.qint8).is_quantized
    torch.quantize_per_tensor(x, torch.tensor(0.1), torch.tensor(0), torch.quint8).int_repr()
    torch.nn.functional.relu(a).dequantize() @ x
    """.strip().splitlines(),
    "mkldnn": ["torch.relu(a).to_dense() + x.sin()"],
}


class Box(nn.Module):
    """A module that keeps one of the tensors."""

    def __init__(self, kept: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("kept", kept)
        self.last: Any = None

    def forward(self, x: torch.Tensor) -> Any:
        self.last = self.kept
        return self.kept.layout, x.sin()

    def keep(self, tensor: torch.Tensor) -> None:
        self.last = tensor


def plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.dequantize() if tensor.is_quantized else tensor.to_dense()


def expressions(kind: str) -> list[str]:
    kinds = (kind, "sparse" if kind in ("coo", "csr") else "")
    return [text.strip() for text in (*ANY, *(line for k in kinds for line in MORE.get(k, ())))]


def check(kind: str, texts: list[str], backend: str) -> None:
    """The expressions one after the other, in two calls for other sizes and one with a plain tensor in its place."""
    space: dict[str, Any] = {"torch": torch, "plain": plain, "unusual": KINDS[kind]}
    results = "\n".join(f"  seen.append(({text}))" for text in texts)
    exec(f"def fn(a, x, box):\n  seen = []\n{results}\n  return seen, x.sin() * 2", space)

    def program(call: Callable[..., Any]) -> Any:
        found = []
        for size in (3, 4, 3):
            torch.manual_seed(size)
            a, x = KINDS[kind](torch.randn(size, size).relu()), torch.randn(size, 3, requires_grad=True)
            box = Box(a)
            seen, last = call(a, x, box)
            tensors = [t for t in (*flat(seen), last) if t.requires_grad and t.layout is torch.strided]
            sum(t.sum() for t in tensors).backward()  # type: ignore[union-attr]
            inside = [plain(t) if t.is_quantized or t.layout is not torch.strided else t for t in flat(seen)]
            found.append([inside, [t is a for t in flat(seen)], box.last is a, x.grad, shown(seen)])
        return found

    dovetail.reset()
    compiled = dovetail.compile(space["fn"], backend=backend)
    alike(outcome(program, compiled), outcome(program, space["fn"]), f"{kind} {texts}")
    given = KINDS[kind](torch.eye(3)), torch.ones(3, 3), Box(torch.eye(3))
    graphs = dovetail.explain(space["fn"], backend="eager")(*given)
    assert graphs.op_count, "the plain part ran eagerly"


def flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for part in value for t in flat(part)]
    return [value] if isinstance(value, torch.Tensor) else []


def shown(value: Any) -> Any:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [shown(part) for part in value]
    return str(value.layout) if isinstance(value, torch.Tensor) else str(value)


@pytest.mark.parametrize("kind", KINDS)
def test_each_alone(kind: str) -> None:
    for text in expressions(kind):
        check(kind, [text], "eager")


@pytest.mark.parametrize("kind", KINDS)
def test_several(kind: str) -> None:
    for seed in range(3):
        draw = random.Random(seed)
        check(kind, draw.choices(expressions(kind), k=draw.randint(2, 4)), "dovetail")

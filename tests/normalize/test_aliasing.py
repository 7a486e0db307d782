"""Which results share memory, and with what."""

from __future__ import annotations

import pytest
import torch

from dovetail.normalize import normalize
from dovetail.ops.fake import to_fake
from dovetail.options import Options
from tests.normalize.harness import check, functional, outputs

torch.manual_seed(0)
X = torch.randn(4, 6)
CONSTANT = torch.randn(6)

CASES = {
    "input": lambda x: x,
    "input twice": lambda x: (x, x),
    "view of input": lambda x: x.view(-1),
    "slice of input": lambda x: x[1:, ::2],
    "views of input": lambda x: (x[0], x[0], x.t(), x.view(2, 12)),
    "detach": lambda x: x.detach(),
    "same view": lambda x: x.view_as(x),
    "detach twice": lambda x: (x.detach(), x.detach(), x),
    "split of input": lambda x: x.split(2),
    "unbind": lambda x: x.unbind(1),
    "real view": lambda x: x.view(torch.int32),
    "expand": lambda x: x[0].expand(3, 6),
    "result twice": lambda x: (lambda y: (y, y))(x + 1),
    "result and its view": lambda x: (lambda y: (y, y.view(-1)))(x + 1),
    "view and its base": lambda x: (lambda y: (y.t(), y))(x + 1),
    "result and detached": lambda x: (lambda y: (y, y.detach()))(x + 1),
    "overlapping views": lambda x: (lambda y: (y[:3], y[1:]))(x * 2),
    "parts of one result": lambda x: torch.softmax(x, 0).chunk(2),
    "expanded result": lambda x: (x.sum(0).expand(3, 6),),
    "strided result": lambda x: (x + 1)[:, ::2],
    "transposed result": lambda x: (x + 1).t(),
    "unsqueezed": lambda x: (x + 1).unsqueeze(0).transpose(0, 1),
    "nothing": lambda x: (None, 3, "a", x.shape[0]),
    "input as scalar view": lambda x: x[1, 2],
    "no copy by to": lambda x: x.to(torch.float32),
    "copy by to": lambda x: x.to(torch.float64),
    "contiguous": lambda x: x.contiguous(),
    "contiguous copy": lambda x: x.t().contiguous(),
    "clone": lambda x: x.clone(),
    "reshape": lambda x: (x.reshape(-1), x.t().reshape(-1)),
    "constant": lambda x: torch.tensor([1.0, 2.0]),
    "constant used": lambda x: x[:, :2] * torch.tensor([1.0, 2.0]),
    "constant written": lambda x: torch.tensor([1.0, 2.0]).add_(1),
    "zeros": lambda x: (torch.zeros(3), torch.zeros(3)),
    "copied then returned": lambda x: (lambda t: (t.copy_(x), x))(torch.empty(4, 6)),
    "filled": lambda x: torch.empty(3).fill_(1),
    "max": lambda x: x.max(1),
    "topk": lambda x: x.topk(2),
    "named": lambda x: torch.var_mean(x, 0),
    "list of results": lambda x: [x + 1, [x * 2, (x,)]],
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x).diagonal(),
    "broadcast": lambda x: torch.broadcast_tensors(x, x[:1]),
    "movedim": lambda x: x.unsqueeze(0).movedim(0, 2),
    "squeeze of nothing": lambda x: x.squeeze(),
    "permuted sum": lambda x: (x.t() + x.t().contiguous()),
}


@pytest.mark.parametrize("case", CASES)
def test_like_eager(case):
    check(CASES[case], X)


Z = torch.randn(4, 6, dtype=torch.complex64)

COMPLEX = {
    "conjugate": lambda z: z.conj(),
    "conjugate of a result": lambda z: (lambda y: (y, y.conj()))(z * 2),
    "adjoint": lambda z: (z.mH, z.conj() * 2),
    "parts": lambda z: (z.real, z.imag, z.conj().imag),
    "written part": lambda z: (z.imag.mul_(2), z.real + 1),
    "as real": lambda z: torch.view_as_real(z),
    "matrix product": lambda z: z @ z.mH,
    "written conjugate": lambda z: z.conj().mul_(1j),
}


@pytest.mark.parametrize("case", COMPLEX)
def test_complex(case):
    check(COMPLEX[case], Z, exact=False)


WRITTEN = {
    "returned": lambda x: x.add_(1),
    "view after write": lambda x: x.add_(1)[0],
    "view before write": lambda x: (x[0], x.add_(1))[0],
    "write through returned view": lambda x: x[0].mul_(2),
    "detached write": lambda x: x.detach().zero_(),
    "intermediate written through view": lambda x: (lambda y: (y[0].t().add_(1), y))(x * 1),
    "copy of itself": lambda x: x.copy_(x * 2),
    "written twice": lambda x: (x.add_(1), x.mul_(2)),
    "split written": lambda x: (lambda p: (p[0].add_(1), p[1]))(x.split(2)),
}


@pytest.mark.parametrize("case", WRITTEN)
@pytest.mark.parametrize("x", [X, torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2], torch.randn(9, 6)[3:7]],
                         ids=["contiguous", "transposed", "gaps", "offset"])
def test_written(case, x):
    check(WRITTEN[case], x)


def test_attributes_are_constants_that_keep_their_identity():
    class Program(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", CONSTANT.clone())

        def forward(self, x):
            self.scale.mul_(2)
            return x * self.scale, self.scale, self.scale[0]

    graph = torch.fx.symbolic_trace(Program())
    with torch.no_grad():
        aten = normalize(graph, [to_fake(X)], Options())
        found = outputs(aten)(X)
    assert list(aten.constants.values())[0] is graph.scale
    torch.testing.assert_close(graph.scale, CONSTANT * 2)
    assert found[1] is graph.scale and found[2].data_ptr() == graph.scale.data_ptr()
    torch.testing.assert_close(found[0], X * CONSTANT * 2)


def test_an_input_returned_is_no_result():
    aten = functional(lambda x: (x, x.detach()), X)
    assert list(aten.graph.nodes)[-1].args[0] == ()
    assert [(r.origin, r.value, len(r.steps)) for r in aten.returned] == [("input", 0, 0), ("input", 0, 1)]

"""Programs whose memory several tensors share, one line each, and what a caller does with the results afterwards."""

from __future__ import annotations

import pytest

from tests.fuzz.aliasing.check import check
from tests.fuzz.aliasing.grammar import CALLERS, LIBRARY

LEAF = "torch.randn(3, 4).requires_grad_()"
PLAIN = "torch.randn(3, 4)"
SQUARE = "torch.randn(4, 4).requires_grad_()"
INNER = "torch.randn(3, 4, requires_grad=True) * 2"

#: name -> (what makes x, the program's body, lines of the caller's)
PROGRAMS = {
    "a row's storage, written to": (
        "torch.randn(4, 4)[1]", "v = x.as_strided((2, 2), (2, 1)); v.mul_(0.5); return v * 2",
    ),
    "a result that is a view is written to": (LEAF, "return (x * 2)[0]", "out[0].mul_(3)", "total(out[0]).backward()"),
    "two views of one result": (LEAF, "y = x * 2; return y[0], y[:2]", "out[0].add_(1)", "total(*out).backward()"),
    "a result and what is detached from it": (PLAIN, "y = x * 2; return y, y.detach(), y.data", "out[2].add_(1)"),
    "views of what is detached": (PLAIN, "y = x.detach(); return y[0], y[1]", "out[0].add_(1)"),
    "a view of an output that comes later": (PLAIN, "y = x.t(); return y[0], y", "out[1].zero_()"),
    "written twice": (PLAIN, "x.add_(1); x[0].mul_(2); return x[1]", "out[0].add_(1)"),
    "written through .data": (LEAF, "x.data.mul_(2); return x * 1", "total(out[0]).backward()"),
    "written to in a block without gradients": (LEAF, "with torch.no_grad(): x.mul_(2)\n    return x.t()",
                                               "total(out[0]).backward()"),
    "a detached tensor gets a history": (LEAF, "y = x.detach(); y.mul_(x); return y[0]", "total(out[0]).backward()"),
    "reshaped in place": (LEAF, "y = x * 2; z = y[0]; y.unsqueeze_(0); return y, z, y.view(-1)", "out[1].add_(1)",
                          "total(*out).backward()"),
    "a view transposed in place, then written to": (
        SQUARE, "y = x * 2; v = y.t(); v.transpose_(0, 1); v += y; return v[1], y", "total(*out).backward()",
    ),
    "a view of another shape before, its base written to": (
        SQUARE, "y = x * 2; v = y.t(); z = v[0]; v.unsqueeze_(0); v.squeeze_(0); v.t_(); y.mul_(3); return v[1], z, v",
        "total(*out).backward()",
    ),
    "a part of several transposed in place": (
        SQUARE, "y = x * 2; a, b = [y.t(), y.t()]; a.swapaxes_(0, 1); b.mul_(y.t()); a.as_strided_((2, 2), (1, 2))\n"
        "    a.mul_(2); return a, b", "total(*out).backward()",
    ),
    "views of what is detached, one of them detached again": (
        PLAIN, "v = x.data; z = v[1:].detach(); w = z[0]; v.zero_(); return v[0], z.t(), w", "out[1].add_(1)",
    ),
    "a leaf reshaped in place while a result of it is alive": (
        LEAF, "v = x.exp()\n    with torch.no_grad(): x.unsqueeze_(0)\n    return x.expand_as(x),",
        "torch.autograd.grad(total(*out), x)",
    ),
    "a leaf reshaped in place while a view lives that PyTorch gives no history": (
        LEAF, "y = x * 2\n    with torch.no_grad(): v = y[0]\n    y.mul_(2)\n"
        "    with torch.no_grad(): x.unsqueeze_(0)\n    return x.expand_as(x), y",
        "torch.autograd.grad(total(*out), x)",
    ),
    "a leaf reshaped in place after a result of it": (
        LEAF, "x.exp()\n    with torch.no_grad(): x.unsqueeze_(0)\n    return x.expand_as(x),",
        "torch.autograd.grad(total(*out), x)",
    ),
    "a detached tensor reshaped in place, and a view of what it was": (
        PLAIN, "v = x.data; z = v[0]; w = v[1:]; v.t_(); v.unsqueeze_(0); v.detach().add_(1); return z, v, w, v[0]",
        "out[0].add_(1)",
    ),
    "views of what a detached tensor was": (PLAIN, "v = x.data[1:]; v = v.detach(); z = v[0]; w = v[:, 1:]; v.t_()\n"
                                            "    v.add_(1); return z, w", "out[1].mul_(2)"),
    "a view of what a detached tensor was": (PLAIN, "v = (x * 2).detach(); z = v[0]; v.unsqueeze_(0); return z",
                                             "out[0].add_(1)"),
    "a detached view reshaped in place": (PLAIN, "y = x.t().detach(); y.unsqueeze_(0); return y, y[0]"),
    "reshaped in place without gradients, and a view of what it was": (
        LEAF, "y = x * 2; v = y.T\n    with torch.no_grad(): y.unsqueeze_(0)\n    return v", "out[0].detach().add_(1)",
        "total(out[0]).backward()",
    ),
    "an input reshaped in place": (PLAIN, "for row in x.unbind(0): row.add_(1)\n    x.unsqueeze_(0); return x * 2"),
    "an expanded input": ("torch.randn(4).expand(3, 4)", "for row in x: row.add_(1)\n    return x * 2"),
    "an expanded number": ("torch.randn(()).expand(3)", "x[1].mul_(2); return x * 2"),
    "as_strided beside a view's elements": (LEAF, "return x.diagonal().as_strided((2,), (1,), 1)",
                                            "total(out[0]).backward()"),
    "as_strided of what is detached": (LEAF, "return x[1].detach().as_strided((2, 3), (1, 2), 3), x * 2",
                                       "out[0].add_(1)", "total(out[1]).backward()"),
    "as_strided of a result's view": (LEAF, "y = x * 2; return y[1].as_strided((2,), (1,)), y",
                                      "total(*out).backward()"),
    "as_strided before another shape": (PLAIN, "y = x * 2; z = y[1].as_strided((2,), (1,)); y.unsqueeze_(0)\n"
                                        "    return y, z", "out[1].add_(1)"),
    "reshaped in place, then given a history": (LEAF, "y = torch.zeros_like(x); y.unsqueeze_(0); y.add_(x)\n"
                                                "    return y, y[0]", "total(*out).backward()"),
    "a view of zeros gets a history": (LEAF, "y = torch.zeros(3, 4); return y.unsqueeze(0)", "out[0].add_(x)",
                                       "total(*out).backward()"),
    "a view in a list, in a block that ends the graph": (
        f"({INNER}).view(3, 4)", "with torch.autograd.graph.save_on_cpu(): torch._foreach_copy_([x], [x])",
    ),
    "one tensor twice in a list": (PLAIN, "y = x * 1; torch._foreach_add_([y, y, x], 1); return y"),
    "lists of each other": (PLAIN, "y = x * 1; torch._foreach_add_([x, y], [y, x]); return y"),
    "a buffer written to and replaced": (PLAIN, "m.ema.lerp_(x.mean(0), 0.1); m.ema = m.ema * 0.9; return m.ema"),
    "a cache": (PLAIN, "m.cache[1:] = x[:2]; m.position.add_(1); return m.cache[1], m.row", "out[0].add_(1)"),
    "an input gets a history": (PLAIN, "y = m.bias * 2; z = y * x; x.div_(y.abs() + 1); return x[0], z",
                                "total(*out).backward()"),
    "an input without gradient on the way": (INNER, "return x.detach() * m.bias, x.detach().sin()",
                                             "total(*out).backward()"),
    "a result that nobody differentiates": (LEAF, "return x * 2, m.weight * 3", "total(out[0]).backward()"),
    "results differentiated one after the other": (LEAF, "return x * 2, m.weight * 3", "total(out[0]).backward()",
                                                   "total(out[1]).backward()"),
    "an input changed before its gradient": (INNER, "return (x * 2).exp().clamp(max=9)", "x.detach().mul_(2)",
                                             "total(out[0]).backward()"),
    "a result changed before its gradient": (LEAF, "y = x * 2; return y, y.tanh() + y.sin()", "out[0].detach().mul_(2)",
                                             "total(out[1]).backward()"),
    "a result that is another's derivative is changed": (LEAF, "return x.sin(), x.cos()", "out[1].mul_(2)",
                                                         "out[0].zero_()", "total(*out).backward()"),
    "a view made without gradients that is told to require them": (
        LEAF, "with torch.no_grad(): y = x[0]\n    y.requires_grad_(); return y", "total(out[0]).backward()",
    ),
    "recording begins late": (INNER, "with torch.no_grad(): x.tanh_()\n    m.cache[1] = x[0]; return m.cache * 1",
                              "total(out[0]).backward()"),
    "an integer tensor gets fractions": (PLAIN, "m.cache.add_(1); y = x.to(torch.int64); y.mul_(0.5); return y"),
    "values of another shape": (PLAIN, "m.cache.add_(1); y = x * 1; y[torch.tensor([0, 2])] = x.t()[:1]; return y"),
    "a result that overlaps itself": (LEAF, "return (x * 2).unfold(0, 2, 1)", "total(out[0]).backward()"),
    "a view made without gradients": (INNER, "with torch.no_grad(): y = x[0]\n    return y * y, y",
                                      "total(*out).backward()"),
    "a view made without gradients of what has none": (PLAIN, "with torch.no_grad(): y = torch.zeros(3, 4)[0]\n"
                                                       "    return y", "out[0].add_(m.bias)"),
    "a view reshaped without gradients": (PLAIN, "z = x * 2; y = z[0]\n    with torch.no_grad(): y.unsqueeze_(0)\n"
                                          "    return z, y", "out[1].add_(m.bias)"),
    "a view read between two writes": ("torch.randn(4)", "y = x[1:]; x.add_(m.bias); y * 2; y.mul_(2); return y * 1",
                                       "total(out[0]).backward()"),
    "a view from outside read between two writes": ("torch.randn(4)[1:]", "y = x[:2]; x.add_(m.bias[1:]); y * 2\n"
                                                    "    y.mul_(2); return y * 1"),
    "a view from outside that nobody reads between two writes": (
        "torch.randn(4)[1:]", "y = x.squeeze(); y.add_(m.bias[1:]); x.mul_(2); return x * 1",
    ),
    "a view made without gradients, read without them after a write": (
        INNER, "with torch.no_grad(): y = x.view(-1)\n    x.transpose_(0, 1)\n    with torch.no_grad(): y * 2\n"
        "    return x * 1",
    ),
    "a view made without gradients, viewed without them after a write": (
        INNER, "with torch.no_grad(): y = x.view(-1)\n    x.transpose_(0, 1)\n    with torch.no_grad(): y.view_as(y)\n"
        "    return x * 1",
    ),
    "a view made without gradients, read after a write": (
        INNER, "with torch.no_grad(): y = x.view(-1)\n    x.transpose_(0, 1); y * 2; return x * 1",
    ),
    "a view made without gradients, split after a write": (
        INNER, "with torch.no_grad(): y = x.view(-1)\n    x.transpose_(0, 1); y.unbind(0); return x * 1",
    ),
    "a view made without gradients, asked for as it is after a write": (
        INNER, "with torch.no_grad(): y = x.view(-1)\n    x.transpose_(0, 1); y.type_as(y); y.contiguous(); y.real\n"
        "    return x * 1",
    ),
    "a view made where gradients are on again": (
        PLAIN, "with torch.no_grad(): x.t_()\n    y = x * 2; return y.view(y.shape)", "out[0].mul_(m.bias[0])",
    ),
    "parts of zeros that are reshaped in place": (
        PLAIN, "y = torch.zeros(4); z = y.chunk(2); y.unsqueeze_(0); return *z, y", "out[0].add_(1)",
    ),
    "a view of random numbers that are reshaped in place": (
        PLAIN, "y = torch.rand_like(x); z = y.t(); y.unsqueeze_(0); return z, y", "out[0].add_(1)",
    ),
    "zeros like a tensor, reshaped in place": (
        LEAF, "y = torch.zeros_like(x); z = y[0]; y.unsqueeze_(0); return z, y, y.detach()", "out[0].add_(x[0])",
    ),
    "parts of ones that are transposed in place": (
        PLAIN, "y = torch.ones(4); z = y[:2]; y.t_(); y.add_(1); return z, y, y.view(2, 2)", "out[1].add_(1)",
    ),
    "a view from outside that cannot be detached in place": (
        f"({INNER})[0]", "m.ema = m.ema * 2; x.detach_(); return x * 1",
    ),
    ".data of what the caller has views of": (PLAIN, "with torch.no_grad(): y = x[[0, 0]]\n    return y.data, y[0]"),
    "a product that adds in place": ("torch.randn(3, 1, 4).expand(3, 2, 4)", "return F.linear(x, m.weight, m.bias)"),
    "as_strided of too little, unread": ("torch.randn(1)", "(x * 2).as_strided((2, 2), (2, 1)); return x * 3"),
    "as_strided of too little": ("torch.randn(1)", "return (x * 2).as_strided((2, 2), (2, 1)) * 3"),
    "a product with a column": (
        "torch.randn(4, 4)[..., 2]", "return F.linear(x, m.weight, m.bias), F.linear(x, m.weight)",
    ),
    "a product with what does not fit, unread": (PLAIN, "torch.addmm(m.weight, x[:1], m.weight); return x * 2"),
    "a write before what only the kernel refuses": (PLAIN, "x.add_(1); torch.rand_like(m.position); return x * 2"),
    "random numbers into what is transposed next": (PLAIN, "x.normal_(); x.t_(); return x * 2"),
    "a norm of a transposed input": ("torch.randn(4, 4).t()", "return m.norm(x)", "total(out[0]).backward()"),
    "written to where elements share a place": ("torch.randn(1).expand(3, 1)", "x.diagonal().fill_(0)"),
    "rows added of another shape": (PLAIN, "x.fill_(1); x.index_add_(0, torch.tensor([0]), m.cache[:1, :1]); return x"),
    "as_strided read after a write, from an offset": (
        "torch.randn(4, 4)[1:]", "x[..., ::2].mul_(2); return x.as_strided((2,), (1,)) * 1",
    ),
    "as_strided of a copy of a part": ("torch.randn(5)", "return x[1:].clone().as_strided((2,), (1,)) * 1"),
    "as_strided of what a part was copied to": (
        "torch.randn(5)", "y = torch.empty(4); y.copy_(x[1:]); y.as_strided((2,), (1,), 1).mul_(2); return y",
    ),
    "as_strided of what was copied to itself": (
        "torch.randn(5)[1:]", "x.copy_(x.view(-1)); x.as_strided((2,), (1,)).add_(1); return x * 1",
    ),
    "as_strided written to twice, from an offset": (
        "torch.randn(4, 4)[1:]",
        "x[..., ::2].mul_(2); x.as_strided((2,), (1,)).add_(1); x.as_strided((2,), (2,)).add_(1)",
    ),
    "views of a result before and after a write": (
        PLAIN, "y = torch.zeros_like(x); z = y.view(-1); y.add_(1); return y, z, y.t()", "out[0].requires_grad_()",
    ),
    "views of an input before and after a write": (
        PLAIN, "y = x.view(-1); x.add_(1); return y, x.t()", "x.requires_grad_()",
    ),
    "a hook on an input that was read before and after a write": (
        f"{LEAF}[1:]", "y = x.view(-1); x.detach().add_(1); return x[0], y", "x.register_hook(lambda g: g * 3)",
        "total(*out).backward()",
    ),
    "a hook on an input that is read after a write": (
        f"{LEAF}[1:]", "x.detach().add_(1); return x.sin()", "x.register_hook(lambda g: g * 3)",
        "total(out[0]).backward()",
    ),
    "a hook on an input that is read after a write, for nothing": (
        f"{LEAF}[1:]", "x.detach().add_(1); x.sin()", "x.register_hook(lambda g: g * 3)", "total(x).backward()",
    ),
    "a hook on a result that was read before and after a write": (
        LEAF, "y = (x * 2)[1:]; z = y.view(-1); y.detach().add_(1); return y[0], y, z",
        "out[1].register_hook(lambda g: g * 3)", "total(*out).backward()",
    ),
    "rows without elements are written to": ("torch.randn(2, 0)", "for row in x: row.mul_(0.5)"),
    "a view that is reshaped after a write": (
        PLAIN, "y = x * 2; z = y.view(-1); y.add_(1); z.unsqueeze_(0); return y, z", "out[0].requires_grad_()",
    ),
    "a history without a derivative that some results do not have": (
        INNER, "y = torch.randn(2); y.set_(x.sum()); y.mul_(2); return x * 3", "total(out[0]).backward()",
    ),
    "a history that some results do not have": (PLAIN, "m.ema.lerp_(m.bias, 0.1); return m.weight * 2",
                                                "total(out[0]).backward()", "m.ema.register_hook(lambda g: g * 3)"),
}  # fmt: skip


def compared(x, inputs, body, backend, after=(), kept="", before=""):
    """What `check` finds of a program of tensors `x`, `y`, ... and modules `m`; `x` is made first, of it `inputs`."""
    letters = iter("xyz")
    names = ", ".join("m" if made == "Module()" else next(letters) for made in inputs)
    lines = "\n".join(f"    see(lambda: {line})" for line in after) or "    pass"
    return check(
        f"{LIBRARY}{CALLERS}\n{before}\n"
        f"def make_inputs():\n    x = {x}\n    return [{', '.join(inputs)}], [{kept}]\n\n\n"
        f"def program({names}):\n    {body}\n\n\ndef afterwards(see, args, kept, out, {names}):\n{lines}\n",
        backend,
    )


@pytest.mark.parametrize("backend", ["dovetail", "aot_eager", "eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_like_eager(name, backend):
    made, body, *after = PROGRAMS[name]
    found = compared(made, ["x", "Module()"], body, backend, after, "x, x._base")
    assert not found.difference, found.difference


@pytest.mark.parametrize("backend", ["dovetail", "aot_eager", "eager"])
@pytest.mark.parametrize("made", ["x[:1]", "x.detach().requires_grad_()"])
def test_a_view_is_out_of_date_by_a_write_under_another_name(made, backend):
    """Nobody needs what is computed of it, but PyTorch refuses that."""
    body = "with torch.no_grad():\n        z = y[:1]\n        x.mul_(2)\n    z + 1"
    found = compared(LEAF, ["x", made], body, backend)
    assert found.raised and not found.difference, found.difference


@pytest.mark.parametrize("backend", ["dovetail", "aot_eager", "eager"])
@pytest.mark.parametrize("body", [
    "y.add_(1); x.requires_grad_(); y.sin(); x.detach_()",
    "y.add_(1); x.requires_grad = True; v = y[:1]; v.sin(); x.detach_(); return v",
    "y.add_(1); x.requires_grad_(); Squared.apply(y); x.detach_()",
    "x.add_(m.bias); y.t(); y.sigmoid_(); return y",
    "y.add_(m.bias); Squared.apply(z); z.mul_(2); return z",
    "m.weight.detach_(); y.add_(m.bias); z.sin(); z.mul_(2); return z",
    "y.add_(m.bias); Product.apply(m.bias, z, 3.0); z.mul_(2); return z",
    "y.add_(m.bias); checkpoint(torch.sin, z, use_reentrant=False); z.mul_(2); return z",
])  # fmt: skip
def test_a_view_is_brought_up_to_date_by_what_nobody_needs(body, backend):
    found = compared(
        "torch.randn(4)", ["x", "x[:]", "x[:]", "Module()"], body, backend,
        before="from torch.utils.checkpoint import checkpoint",
    )  # fmt: skip
    assert not found.difference, found.difference


@pytest.mark.parametrize("backend", ["dovetail", "aot_eager", "eager"])
def test_a_view_is_not_brought_up_to_date_after_detach(backend):
    """PyTorch refuses to bring this one up to date, but not once nothing is left that has a history."""
    body = "with torch.no_grad(): z = y[:1]; y.mul_(2)\n    x.detach_(); z.sin()"
    found = compared(LEAF, ["x", "x[:1]"], body, backend)
    assert not found.raised and not found.difference, found.difference


@pytest.mark.parametrize("backend", ["dovetail", "aot_eager", "eager"])
def test_what_is_written_before_a_view_that_cannot_be_brought_up_to_date_is_written(backend):
    body = "with torch.no_grad(): v = x[:1]\n    y.copy_(y); z[0] = 1.5; v.sin()"
    found = compared(INNER, ["x", "x[1:]", "torch.randn(4)"], body, backend)
    assert found.raised and not found.difference, found.difference


@pytest.mark.parametrize("backend", ["dovetail", "aot_eager", "eager"])
@pytest.mark.parametrize("read", ["T", "mT", "H", "t()"])
def test_reading_a_view_that_cannot_be_brought_up_to_date_raises(read, backend):
    body = f"z = Viewed.apply(x); x.relu_(); y = x.sin(); z.{read}; return y"
    found = compared("torch.randn(2, 4).requires_grad_() * 2", ["x[:]"], body, backend)
    assert found.raised and not found.difference, found.difference


@pytest.mark.parametrize("backend", ["dovetail", "aot_eager", "eager"])
def test_a_view_by_a_users_function_is_out_of_date_by_a_write(backend):
    body = "y = x.detach(); z = Viewed.apply(y); z.requires_grad_(); return z.view(-1), y"
    found = compared("torch.randn(4)", ["x"], body, backend, ["out[1].add_(1)", "total(out[0])"])
    assert not found.difference, found.difference

"""Operators of users, kernel switches, and gradients asked for inside the region."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import dovetail
from tests.capture.higher import BACKENDS, derivatives, everywhere, refused, same, with_gradients


@torch.library.custom_op("dovetail_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, k: float) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * k)


scaled.register_fake(lambda x, k: torch.empty_like(x))
scaled.register_autograd(
    lambda ctx, g: (g * ctx.k * 7, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "k", inputs[1])
)


@torch.library.custom_op("dovetail_tests::undescribed", mutates_args=())
def undescribed(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * 2)


@torch.library.custom_op("dovetail_tests::doubled_into", mutates_args={"out"})
def doubled_into(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x * 2)


@torch.library.custom_op("dovetail_tests::counted", mutates_args={"y"})
def counted(x: torch.Tensor, y: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    y.add_(1)
    return x * n, x + n


counted.register_fake(lambda x, y, n: (torch.empty_like(x), torch.empty_like(x)))


@torch.library.custom_op("dovetail_tests::all_raised", mutates_args={"ys"})
def all_raised(ys: list[torch.Tensor]) -> None:
    for y in ys:
        y.add_(1)


def into_a_new_tensor(x):
    out = torch.empty_like(x)
    doubled_into(x, out)
    return out + 1


def into_an_input(x):
    doubled_into(x * 1, x)
    return x.sin()


def into_a_view(x):
    y = x.clone()
    doubled_into(x[1], y[0])
    all_raised([y[2], x[3]])
    return y


def with_results(x):
    y = x.t().clone()
    a, b = counted(x, y, 3)
    return a, b, y


@pytest.mark.parametrize(
    "program",
    [
        lambda x: scaled(x.sin(), 2.0).cos(), lambda x: torch.ops.dovetail_tests.scaled(x, 3.0) + 1,
        lambda x: torch.ops.dovetail_tests.scaled.default(x, 3.0), into_a_new_tensor, into_an_input, into_a_view,
        with_results,
    ],
)  # fmt: skip
def test_operators(program):
    everywhere(program, torch.randn(4, 4))


def test_an_operators_own_gradient():
    with_gradients(lambda x: scaled(x.sin(), 2.0).cos(), torch.randn(4, 4))


def test_an_operator_that_nothing_describes_breaks_the_graph():
    def program(x):
        return undescribed(x.sin()) + 1

    x = torch.randn(3)
    assert refused(program, x) == "no-shape-rule"
    same(dovetail.compile(program)(x), program(x))


def attention(x):
    q = x.view(1, 1, 4, 4)
    with sdpa_kernel(SDPBackend.MATH):
        y = F.scaled_dot_product_attention(q, q, q)
    return F.scaled_dot_product_attention(y, q, q)


def test_attention_under_chosen_kernels():
    everywhere(attention, torch.randn(4, 4))
    with_gradients(attention, torch.randn(4, 4))


def test_the_choice_of_kernels_is_relied_on_and_put_back():
    compiled = dovetail.compile(attention, backend="eager", fullgraph=True)
    x = torch.randn(4, 4)
    for chosen in ([SDPBackend.MATH], [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        with sdpa_kernel(chosen):
            same(compiled(x), attention(x))
            assert torch.backends.cuda.flash_sdp_enabled() == (SDPBackend.FLASH_ATTENTION in chosen)
    assert torch.backends.cuda.flash_sdp_enabled()


# ---------------------------------------------------------------- gradients inside


def inner_gradient(x):
    y = x.detach().clone().requires_grad_()
    (g,) = torch.autograd.grad((y**2).sum(), y)
    return g + x.detach()


def gradient_of_an_input(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return (g**2).sum()


def penalty(x):
    y = x * 2
    (g,) = torch.autograd.grad(y.sin().sum(), [y], create_graph=True)
    return y.sum() + (g**2).sum()


def test_gradients_of_what_is_made_inside():
    x = torch.randn(4)
    for backend in BACKENDS:
        same(dovetail.compile(inner_gradient, backend=backend, fullgraph=True)(x), inner_gradient(x))


@pytest.mark.parametrize("program", [gradient_of_an_input, penalty])
def test_gradients_of_gradients(program):
    with_gradients(program, torch.randn(4))


def backward_inside(x):
    y = x.detach().clone().requires_grad_()
    (y**3).sum().backward()
    return y.grad


def hooked(x):
    h = x * 2
    h.register_hook(lambda g: g * 10)
    return (h * 3).sum()


def leaf_made_inside(x):
    w = torch.ones(4, requires_grad=True)
    return (w * x.detach()).sum(), w


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_breaks_the_graph_or_stays_with_the_engine(backend):
    x = torch.randn(4)
    for program, mode in ((backward_inside, True), (leaf_made_inside, True), (leaf_made_inside, False)):
        with torch.set_grad_enabled(mode):
            same(dovetail.compile(program, backend=backend)(x), program(x))
    same(derivatives(dovetail.compile(hooked, backend=backend), (x,)), derivatives(hooked, (x,)))

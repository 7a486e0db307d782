"""torch.func inside the region: one graph, transforms taken apart into plain operators."""

from __future__ import annotations

import collections

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

import dovetail
from tests.capture.higher import everywhere, refused, with_gradients

W = torch.randn(4, 4)
Pair = collections.namedtuple("Pair", "left right")


def energy(a):
    return (a @ W).sin().sum()


def two_derivatives(x):
    return grad(lambda a, b: ((a @ W) * b).sum(), argnums=(0, 1))(x, x + 1)


def with_auxiliary(x):
    return grad(lambda a, p: ((a * p["w"]).sum(), {"aux": a.sin()}), has_aux=True)(x, {"w": W})


def pulled_back(x):
    out, pull = vjp(lambda a: (a @ W).sin(), x)
    return out, pull(out * 2), pull(out)


def pulled_back_with_auxiliary(x):
    out, pull, aux = vjp(lambda a: ((a @ W).sin(), a.cos()), x, has_aux=True)
    return out, pull(out * 2), aux


def dimensions(x):
    f = vmap(lambda a, b: {"o": a * b, "p": (a + b, b)}, in_dims=(1, None), out_dims={"o": 1, "p": (0, None)})
    return f(x, x[0])


def named_results(x):
    return vmap(lambda a: Pair(a.sin(), a.cos()))(x)


def writes_inside(x):
    def f(b):
        c = b.clone()
        c.add_(1)
        c[0] = 3
        return (c * b).sum()

    return grad(f)(x)


def keeps_a_list(x):
    seen = []

    def f(a):
        seen.append("called")
        return a.sin().sum()

    return grad(f)(x), seen


def asks_for_shapes(x):
    return vmap(lambda row: row.view(-1, 2).sum(0) * row.dim() * row.shape[0])(x)


mapped_outside = vmap(lambda a: a.cos() @ W, in_dims=1, chunk_size=2)
differentiated_outside = grad(energy)

CASES = {
    "grad": lambda x: grad(lambda a: a.sin().sum())(x),
    "vmap": lambda x: torch.vmap(lambda a: a.sum(1))(x.view(2, 2, 4)),
    "grad of two": two_derivatives,
    "has_aux": with_auxiliary,
    "grad_and_value": lambda x: grad_and_value(energy)(x),
    "jacrev": lambda x: jacrev(lambda a: (a @ W).sin())(x[0]),
    "jacrev in chunks": lambda x: jacrev(lambda a: (a @ W).sin(), chunk_size=2)(x[0]),
    "jacfwd": lambda x: jacfwd(lambda a: (a @ W).sin())(x[0]),
    "hessian": lambda x: hessian(energy)(x[0]),
    "vjp": pulled_back,
    "linearize": lambda x: torch.func.linearize(lambda a: (a @ W).sin(), x)[1](x + 1),
    "vjp with has_aux": pulled_back_with_auxiliary,
    "jvp": lambda x: jvp(lambda a: (a @ W).sin(), (x,), (x + 1,)),
    "vmap of grad": lambda x: vmap(grad(energy))(x),
    "vmap of jacrev": lambda x: vmap(jacrev(lambda a: a.sin()))(x),
    "grad of vmap": lambda x: grad(lambda a: vmap(lambda row: row.dot(row))(a).sum())(x),
    "grad of grad": lambda x: vmap(vmap(grad(grad(torch.sin))))(x),
    "dimensions": dimensions,
    "named tuple": named_results,
    "chunks": lambda x: mapped_outside(x),
    "made outside": lambda x: differentiated_outside(x) + 1,
    "writes inside": writes_inside,
    "list outside": keeps_a_list,
    "shapes inside": asks_for_shapes,
    "different randomness": lambda x: vmap(lambda a: F.dropout(a, 0.5), randomness="different")(x),
    "same randomness": lambda x: vmap(lambda a: a + torch.rand_like(a), randomness="same")(x),
    "native function": lambda x: vmap(torch.sum)(x),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    everywhere(CASES[name], torch.randn(4, 4))


@pytest.mark.parametrize("name", [n for n in CASES if "randomness" not in n and n != "linearize"])
def test_gradients(name):
    with_gradients(CASES[name], torch.randn(4, 4), backends=("dovetail",))


def test_a_transform_becomes_operators_that_fuse():
    explained = dovetail.explain(CASES["grad"])(torch.randn(4, 4))
    assert explained.graph_count == 1 and explained.graph_break_count == 0


def test_a_value_dependent_branch_under_vmap_is_no_graph():
    assert refused(lambda x: vmap(lambda a: a if a.sum() > 0 else -a)(x), torch.randn(2, 3)) == "data-dependent-branch"


def test_compiled_functions_under_transforms_are_their_originals():
    compiled = dovetail.compile(energy, backend="eager")
    x = torch.randn(4, 4)
    torch.testing.assert_close(grad(compiled)(x), grad(energy)(x))
    torch.testing.assert_close(dovetail.compile(grad(compiled), backend="eager")(x), grad(energy)(x))
    torch.testing.assert_close(dovetail.compile(lambda a: grad(compiled)(a))(x), grad(energy)(x))
    everywhere(lambda a: vmap(compiled)(a), x)


def squares(a):
    return (a @ W).square()


ROOTS = {
    "vmap": (vmap(squares), [torch.randn(3, 4)]),
    "vmap in chunks": (vmap(squares, chunk_size=2), [torch.randn(3, 4)]),
    "grad": (grad(energy), [torch.randn(4)]),
    "grad_and_value": (grad_and_value(energy), [torch.randn(4)]),
    "jacrev": (jacrev(squares), [torch.randn(4)]),
    "hessian": (hessian(energy), [torch.randn(4)]),
    "vmap of grad": (vmap(grad(energy)), [torch.randn(3, 4)]),
    "jvp": (jvp, [squares, (torch.randn(4),), (torch.randn(4),)]),
    "a checkpoint": (checkpoint, [squares, torch.randn(4)]),
}


@pytest.mark.parametrize("name", ROOTS)
def test_what_is_compiled_may_be_a_transform_itself(name):
    """Not only a function that calls one."""
    everywhere(ROOTS[name][0], *ROOTS[name][1], backends=("dovetail",))

"""Checkpointed functions inside of a compiled one: compiled, and computed again when gradients arrive."""

from __future__ import annotations

import functools
import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import dovetail
from tests.autograd.comparing import BACKENDS, leaf, same
from tests.autograd.test_autocast import saved_bytes

W, V = (torch.linspace(-1, 1, 64).view(8, 8) * k for k in (1, 2))


def again(function, *args, reentrant=False, **kwargs):
    return checkpoint(function, *args, use_reentrant=reentrant, **kwargs)


def two(a, b, scale=2.0):
    h = (a @ W).relu()
    return h * scale + b, (h.mean(), a.t())


def wide(x):
    """More of them than are kept where they are drawn."""
    return x.repeat(200, 1) / 200


def kinds(h):
    noise = torch.randn_like(h) + torch.randn(h.shape) + torch.rand_like(h) + torch.rand(h.shape)
    drawn = torch.bernoulli(torch.full_like(h, 0.5)) + torch.empty_like(h).uniform_(-1, 1).exp()
    drawn = drawn + torch.empty_like(h).exponential_(2.0) + torch.normal(0.0, 1.0, h.shape)
    return (h * noise).sin() * drawn + torch.randint(0, 5, h.shape) * h + torch.randint_like(h, 3) * h.cos()


def by_policy(policy):
    return functools.partial(create_selective_checkpoint_contexts, policy)


def every_second():
    """A policy that counts, anew for each call."""
    seen = itertools.count(1)
    return create_selective_checkpoint_contexts(
        lambda context, op, *args, **kwargs: op is torch.ops.aten.mm.default and next(seen) % 2 == 1
    )


SELECTIVE = {
    "none": by_policy(lambda context, op, *args, **kwargs: CheckpointPolicy.PREFER_RECOMPUTE),
    "products": by_policy([torch.ops.aten.mm.default]),
    "every second": every_second,
    "all": by_policy(lambda context, op, *args, **kwargs: CheckpointPolicy.MUST_SAVE),
}


#: Of `x` and a weight `w`.
COMPILED = {
    "product": lambda x, w: again(lambda t: (t @ w).tanh(), x),
    "element-wise": lambda x, w: again(lambda t: (t + 1).sin().exp() * t * w[0], x),
    "one after the other": lambda x, w: again(lambda t: (t @ V).relu() + t, again(lambda t: (t @ w).tanh() + t, x)),
    "nested results": lambda x, w: again(two, x @ w, x * 2, scale=3.0),
    "one in another": lambda x, w: again(lambda t: again(lambda u: (u @ w).sigmoid(), t) @ V, x),
    "a view": lambda x, w: again(lambda t: (t @ w).t()[1:], x).cos(),
    "what it is given": lambda x, w: again(lambda t: (t, t * w), x[:, None])[0].sin() * w,
    "without a history": lambda x, w: again(lambda t: (t @ w, t.argmax(1), t.detach() * 2), x),
    "reentrant": lambda x, w: again(lambda t: (t @ V).relu() @ w, again(lambda t: t @ w, x * 1, reentrant=True)),
    "reentrant, without gradients": lambda x, w: again(lambda t: (t @ W).tanh(), x.detach(), reentrant=True) + x @ w,
    "what it makes is written to": lambda x, w: again(lambda t: (t @ w).add_(1).sin(), x),
    "without gradients": lambda x, w: torch.no_grad()(again)(lambda t: (t @ w).tanh(), x) + x @ w,
    "types": lambda x, w: again(lambda t: torch.autocast("cpu", torch.bfloat16)(torch.mm)(t, w).float(), x),
    "used elsewhere": lambda x, w: (lambda y: (y * y @ V, y))(again(lambda t: (t @ w).tanh(), x.sin())),
    "drop-out": lambda x, w: again(lambda t: F.dropout(F.dropout(t @ w, 0.5).sin() @ V, 0.2), wide(x)),
    "drop-out of paths": lambda x, w: again(lambda t: t + t.new_empty(len(t), 1).bernoulli_(0.5) * (t @ w), x),
    "draws of all kinds": lambda x, w: again(lambda t: kinds(t @ w), wide(x)),
    "draws one in another": lambda x, w: again(lambda t: again(lambda u: F.dropout(u @ w), t).sin() @ V, wide(x)),
    "some kept": lambda x, w: again(lambda t: two(t.sin() @ w, t), x, context_fn=SELECTIVE["products"]),
    "all kept": lambda x, w: again(lambda t: two(t @ w, t), x, context_fn=SELECTIVE["all"]),
    "some kept in another": lambda x, w: again(
        lambda t: again(lambda u: (u @ w).sin(), t) @ V, x, context_fn=SELECTIVE["every second"]
    ),
    "attention": lambda x, w: again(lambda t: F.scaled_dot_product_attention(*[(t @ w)[None, None]] * 3), x),
}
LEFT = {
    "draws and writes": lambda x, w: again(lambda t: F.rrelu(t @ w, training=True).sin(), wide(x)),
    "writes": lambda x, w: again(lambda t, seen: (t @ w, seen.add_(1))[0].sin(), x, torch.zeros(3)),
    "no history of its own": lambda x, w: again(lambda t: ((t @ w).tanh(), torch.ones(3)), x * 1, reentrant=True)[0],
}


def differentiated(call):
    results = []
    for rows in (5, 5, 9):
        x, w = leaf(rows, 8), leaf(8, 8)
        found = [t for t in torch.utils._pytree.tree_leaves(call(x, w)) if isinstance(t, torch.Tensor)]
        sum(t.float().sin().sum() for t in found if t.requires_grad).backward()
        results += [*found, x.grad, w.grad]
    return results


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", COMPILED)
def test_is_compiled(name, backend):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", r".*\[uncompiled-graph\]")
        same(differentiated, COMPILED[name], backend)


@pytest.mark.parametrize("name", LEFT)
def test_is_left_to_the_engine(name):
    dovetail.reset()
    with pytest.warns(UserWarning, match="uncompiled-graph"):
        same(differentiated, LEFT[name])


@pytest.mark.parametrize("reentrant", [False, True])
def test_draws_again_without_masks_and_leaves_the_generator_alone(reentrant):
    x, w = leaf(512, 64), leaf(64, 64)
    program = lambda x: again(lambda t: F.dropout((t @ w).sin(), 0.5).cos(), x, reentrant=reentrant).sum()
    compiled = dovetail.compile(program, fullgraph=True)
    outcomes = []
    for call in (program, compiled):
        torch.manual_seed(1)
        size, result = saved_bytes(call, x)
        torch.manual_seed(2)
        drawn = torch.rand(3)
        torch.manual_seed(2)
        x.grad = w.grad = None
        result.backward()
        outcomes.append((x.grad, w.grad, torch.equal(torch.rand(3), drawn)))
        assert size <= x.nbytes + w.nbytes + torch.get_rng_state().nbytes
    torch.testing.assert_close(outcomes[1][:2], outcomes[0][:2])
    assert outcomes[1][2]


@pytest.mark.parametrize("reentrant", [False, True])
def test_keeps_what_each_is_given(reentrant):
    """And computes the rest of one after the other: what comes first is not computed again for what follows."""
    x, weights = leaf(256, 8), [leaf(8, 64) for _ in range(4)]

    def program(x):
        for w in weights:
            x = again(lambda t, w=w: ((t @ w).sin().cos() @ w.t()).tanh() + t, x, reentrant=reentrant)
        return x.sum()

    compiled = dovetail.compile(program, fullgraph=True)
    size, result = saved_bytes(compiled, x)
    eager, _ = saved_bytes(program, x)
    inputs, shared = x.nbytes * len(weights), sum(w.nbytes for w in weights)
    assert size <= max(eager, inputs + shared)
    result.backward()


@pytest.mark.parametrize(("name", "products"), [("none", 0), ("products", 4), ("every second", 2)])
def test_keeps_what_its_policy_says(name, products):
    x, weights = leaf(256, 64), [torch.randn(64, 64).div(8).requires_grad_() for _ in range(4)]

    def body(x):
        for w in weights:
            x = (x @ w).sin().cos()
        return x

    program = lambda x: again(body, x, context_fn=SELECTIVE[name]).sum()
    size, result = saved_bytes(dovetail.compile(program, fullgraph=True), x)
    assert size == x.nbytes * (1 + products) + sum(w.nbytes for w in weights)
    torch.testing.assert_close(torch.autograd.grad(result, x), torch.autograd.grad(program(x), x))


def test_what_it_was_given_may_not_be_written_to_meanwhile():
    def program(call):
        x = leaf(4)
        y = x * 1
        result = call(y)
        with torch.no_grad():
            y.add_(1)
        result.sum().backward()

    def outcome(call):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            program(call)

    fn = lambda y: again(lambda t: (t + 1).sin().exp(), y)
    outcome(fn)
    outcome(dovetail.compile(fn, fullgraph=True))


def test_a_tensor_that_requires_gradients_may_be_told_so_again():
    """As transformers tell the embeddings of a model whose layers are checkpointed."""

    def fn(x, w):
        h = (x @ w).requires_grad_()
        return again(lambda t: (t @ W).tanh(), h.requires_grad_(True), reentrant=True)

    with warnings.catch_warnings():
        warnings.filterwarnings("error", r".*\[uncompiled-graph\]")
        same(differentiated, fn)

"""Hooks on tensors, nodes, leaves and modules, and anomaly mode, around and inside compiled functions."""

from __future__ import annotations

import contextlib
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import dovetail
from tests.autograd.comparing import BACKENDS, leaf, same


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def test_hooks_of_leaves_and_results(backend):
    def program(call):
        x, w = leaf(3, 4), leaf(4, 5)
        seen = []
        x.register_hook(lambda g: seen.append(("x", g.clone())))
        w.register_hook(lambda g: g * 2)
        out = call(x, w)
        out.register_hook(lambda g: seen.append(("out", g.clone())) or g * 3)
        out.sum().backward()
        return seen, x.grad, w.grad

    same(program, lambda x, w: torch.tanh(x @ w), backend)


def test_hooks_that_are_removed(backend):
    def program(call):
        x = leaf(4)
        handle = x.register_hook(lambda g: g * 2)
        call(x).sum().backward()
        handle.remove()
        call(x).sum().backward()
        return x.grad

    same(program, lambda x: x.sin(), backend)


def test_hooks_after_accumulation(backend):
    """The way an optimizer steps inside backward."""
    def program(call):
        x, w = leaf(3, 4), leaf(4, 5)
        seen = []

        def step(p):
            seen.append((p is x, p.grad.clone()))
            with torch.no_grad():
                p.sub_(p.grad, alpha=0.1)
            p.grad = None

        for p in (x, w):
            p.register_post_accumulate_grad_hook(step)
        for _ in range(2):
            call(x, w).sum().backward()
        return sorted(seen, key=lambda s: not s[0]), x, w, x.grad

    same(program, lambda x, w: (x @ w).sin(), backend)


def test_hooks_of_gradient_functions(backend):
    def program(call):
        x = leaf(4)
        hidden = x * 2
        seen = []
        hidden.grad_fn.register_hook(lambda grads, given: seen.append((grads[0], given[0])))
        hidden.grad_fn.register_prehook(lambda given: tuple(g * 5 for g in given))
        out = call(hidden)
        out.grad_fn.register_hook(lambda grads, given: tuple(g * 2 for g in grads))
        out.sum().backward()
        return seen, x.grad

    same(program, lambda x: x.sin(), backend)


def test_a_hook_inside(backend):
    """Hooks that the compiled code itself registers on what it computes."""
    def fn(x):
        hidden = x.sin()
        hidden.register_hook(lambda g: g * 3)
        return hidden * 2

    def program(call):
        x = leaf(4)
        call(x).sum().backward()
        return x.grad

    same(program, fn, backend, fullgraph=False)


def test_a_hook_inside_on_a_leaf(backend):
    def fn(x):
        x.register_hook(lambda g: g * 3)
        return x.sin() * 2

    def program(call):
        x = leaf(4)
        call(x).sum().backward()
        call(x).sum().backward()
        return x.grad

    same(program, fn, backend, fullgraph=False)


def test_retain_grad_inside(backend):
    def fn(x):
        hidden = x.sin()
        hidden.retain_grad()
        return hidden * 2, hidden

    def program(call):
        x = leaf(4)
        out, hidden = call(x)
        out.sum().backward()
        return x.grad, hidden.grad

    same(program, fn, backend, fullgraph=False)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


HOOKED = {
    "full backward": lambda m, seen: m.register_full_backward_hook(
        lambda _, grads, given: seen.append(("after", grads[0] is None, given[0].clone()))
    ),
    "full backward, other gradient": lambda m, seen: m.register_full_backward_hook(
        lambda _, grads, given: tuple(None if g is None else g * 2 for g in grads)
    ),
    "full backward, before": lambda m, seen: m.register_full_backward_pre_hook(
        lambda _, given: (seen.append(given[0].clone()), (given[0] * 3,))[1]
    ),
    "forward": lambda m, seen: m.register_forward_hook(lambda _, given, out: out * 2),
}


@pytest.mark.parametrize("place", ["whole", "inside", "around"])
@pytest.mark.parametrize("name", HOOKED)
def test_module_hooks(name, place, backend):
    seen = []

    def program(model):
        seen.clear()
        if place == "around":
            HOOKED[name](model, seen)
        x = leaf(3, 4)
        for _ in range(2):
            model(x).sum().backward()
        return list(seen), x.grad, [p.grad for p in model.parameters()]

    def copied_without_hooks():
        torch.manual_seed(0)
        return Block()

    model = copied_without_hooks()
    if place != "around":
        HOOKED[name](model if place == "whole" else model.second, seen)
    same(program, model, backend, fullgraph=False)


def test_global_module_hooks(backend):
    seen = []

    def program(model):
        seen.clear()
        hook = nn.modules.module.register_module_full_backward_hook(
            lambda m, grads, given: seen.append((type(m).__name__, given[0].clone())) if type(m) is nn.Linear else None
        )
        try:
            x = leaf(3, 4)
            model(x).sum().backward()
        finally:
            hook.remove()
        return list(seen), x.grad

    same(program, Block(), backend, fullgraph=False)


def test_anomaly_mode(backend):
    def program(call):
        x = leaf(4)
        with torch.autograd.set_detect_anomaly(True):
            call(x).sum().backward()
        call(x).sum().backward()
        return x.grad

    same(program, lambda x: x.sin().exp(), backend)


def test_anomalies_are_found(backend):
    """The message names eager's operator there and ours here; both are errors of the backward pass."""
    def program(call):
        x = torch.zeros(3, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autograd.set_detect_anomaly(True):
                try:
                    call(x).sum().backward()
                except RuntimeError as error:
                    return "returned nan values" in str(error), x.grad
        return "nothing was found"

    assert same(program, lambda x: (x * 0).sqrt() * 0, backend)[0] is True


def test_anomaly_mode_inside(backend):
    def fn(x):
        with torch.autograd.set_detect_anomaly(True, check_nan=True):
            y = (x * 2).sin().sum()
            y.backward()
        return y.detach(), torch.is_anomaly_enabled()

    def program(call):
        x = leaf(4)
        return call(x), x.grad, torch.is_anomaly_enabled()

    same(program, fn, backend, fullgraph=False)


def test_writes_to_what_is_kept_that_are_allowed(backend):
    def fn(x):
        y = x.sin()
        return y, y * y

    def program(call):
        x = leaf(4)
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            y, z = call(x)
            with torch.no_grad():
                y.mul_(2)
            z.sum().backward()
        return x.grad, y

    same(program, fn, backend, fullgraph=False)


def test_saved_tensor_hooks_around(backend):
    """What is packed differs from eager's; what comes out of it does not."""
    def program(call):
        x, w = leaf(3, 4), leaf(4, 5)
        packed = []

        def pack(t):
            packed.append(1)
            return t.detach().clone()

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            out = call(x, w)
        out.sum().backward()
        return out, x.grad, w.grad, bool(packed)

    same(program, lambda x, w: torch.tanh(x @ w), backend)


@pytest.mark.parametrize("inside", [False, True])
def test_saved_tensor_hooks_see_what_is_saved_alone(inside, backend):
    """Nothing that compiling computes; that would be in the graph."""
    packed = []

    def pack(t):
        packed.append(type(t))
        return t.detach().numpy() * 2

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda a: torch.from_numpy(a) / 2)

    def fn(x, w):
        with hooks if inside else contextlib.nullcontext():
            y = x * w
        return y + 1

    def program(call):
        x, w = leaf(3, 4), leaf(3, 4)
        packed.clear()
        with contextlib.nullcontext() if inside else hooks:
            out = call(x, w)
        out.sum().backward()
        return out, x.grad, w.grad, len(packed)

    same(program, fn, backend, fullgraph=False)
    assert set(packed) == {torch.Tensor}


def test_activations_are_freed_once_they_are_packed(backend):
    """As those who move them elsewhere want it; differentiating twice packs and unpacks as well."""

    def program(call):
        first, second = leaf(4, 4), leaf(4, 4)
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda t: t if isinstance(t, torch.nn.Parameter) else np.array(t.detach().numpy()),
            lambda kept: kept if isinstance(kept, torch.Tensor) else torch.from_numpy(np.asarray(kept)),
        )
        with hooks:
            start = first * 1
            hidden = call(start, second)
            out = call(hidden, second)
        freed = [weakref.ref(start), weakref.ref(hidden)]
        del start, hidden
        alive = [reference() is not None for reference in freed]
        (found,) = torch.autograd.grad(out.sum(), first, create_graph=True)
        found.pow(2).sum().backward()
        return out, found, first.grad, second.grad, alive

    same(program, lambda x, w: x.exp() + torch.sin(w @ w), backend)


def test_save_on_cpu_and_disabled_saving(backend):
    def program(call):
        x = leaf(4)
        with torch.autograd.graph.save_on_cpu():
            call(x).sum().backward()
        return x.grad

    same(program, lambda x: x.sin().exp(), backend)


def test_multi_grad_hooks(backend):
    def program(call):
        x, y = leaf(4), leaf(4)
        seen = []
        note = lambda grads: seen.append([g.clone() for g in grads])
        handle = torch.autograd.graph.register_multi_grad_hook((x, y), note)
        call(x, y).sum().backward()
        handle.remove()
        return seen

    same(program, lambda x, y: x.sin() * y, backend)


def test_hooks_of_what_a_result_does_not_depend_on(backend):
    def program(call):
        x, y = leaf(4), leaf(4)
        seen = []
        y.register_hook(lambda g: seen.append(g.clone()))
        call(x, y)[0].sum().backward()
        return seen

    same(program, lambda x, y: (x.sin(), x * y), backend)


def _halved(gradient):
    return gradient * 0.5


def test_a_function_from_outside_as_a_hook_of_what_is_computed(backend):
    def hooked(x):
        hidden = x * 2
        hidden.register_hook(_halved)
        return hidden.sin()

    def program(call):
        x = leaf(4)
        call(x).sum().backward()
        return x.grad

    same(program, hooked, backend, fullgraph=False)


@pytest.mark.parametrize("listen", [lambda t: t.retain_grad(), lambda t: t.register_hook(lambda g: g * 10)])
def test_hooks_on_results_that_others_are_computed_from(listen):
    """What flows from one to the other would not be seen: an error, no wrong gradient."""

    def fn(x):
        features = x * 2
        return features, features.sin()

    x = torch.randn(4, requires_grad=True)
    features, scores = dovetail.compile(fn)(x)
    listen(features)
    with pytest.raises(RuntimeError, match=r"of shape \(4,\), has a hook"):
        (features.sum() + scores.sum()).backward()

    features, scores = dovetail.compile(fn)(x)
    listen(features)
    features.sum().backward()  # nothing comes by way of the scores
    listened = x.grad.clone()
    x.grad = None
    features, scores = fn(x)
    listen(features)
    features.sum().backward()
    torch.testing.assert_close(listened, x.grad)


def test_hooks_on_results_on_either_side_of_a_break():
    def fn(x):
        features = x * 2
        dovetail.graph_break()
        return features, features.sin()

    grads = []
    x = torch.randn(4, requires_grad=True)
    for call in (fn, dovetail.compile(fn)):
        x.grad = None
        features, scores = call(x)
        features.retain_grad()
        features.register_hook(lambda g: g * 10)
        (features.sum() + scores.sum()).backward()
        grads.append((features.grad, x.grad))
    torch.testing.assert_close(grads[1], grads[0])


def test_hooks_on_views_of_results_that_others_are_computed_from():
    def fn(x):
        features = (x * 2)[1:]
        return features.relu(), features

    scores, features = dovetail.compile(fn)(torch.randn(4, requires_grad=True))
    features.register_hook(lambda g: g * 3)
    with pytest.raises(RuntimeError, match=r"of shape \(3,\), has a hook"):
        (scores.sum() + features.sum()).backward()


def _view_of_an_input(x):
    view = x[0]
    return view, view * 2


def _what_an_input_becomes(x):
    x.mul_(2)
    return x, x.clone()


def _view_of_what_it_becomes(x):
    x.mul_(2)
    view = x[0]
    return view, view * 2


@pytest.mark.parametrize("listen", [lambda t: t.retain_grad(), lambda t: t.register_hook(lambda g: g * 10)])
@pytest.mark.parametrize("fn", [_view_of_an_input, _what_an_input_becomes, _view_of_what_it_becomes])
def test_hooks_on_what_is_no_result_of_the_graph(fn, listen):
    """Views of inputs are made outside of the graph, and an input keeps its identity when it is written to."""

    def run(call, of):
        leaf = torch.ones(3, 4, requires_grad=True)
        outputs = call(leaf * 1)
        listen(outputs[0])
        outputs[of].sum().backward()
        return leaf.grad

    compiled = dovetail.compile(fn)
    torch.testing.assert_close(run(compiled, 0), run(fn, 0))
    with pytest.raises(RuntimeError, match="has a hook"):
        run(compiled, 1)


@pytest.mark.parametrize("listen", [lambda t: t.retain_grad(), lambda t: t.register_hook(lambda g: g * 10)])
def test_an_input_listened_to_is_written_to(listen):
    """The hook stays with the value of then; the gradient that is kept is that of what the tensor becomes."""

    def fn(x):
        x.mul_(2)
        return x.clone()

    def run(call):
        leaf = torch.ones(3, 4, requires_grad=True)
        x = leaf * 1
        listen(x)
        (call(x).sum() + x.sum()).backward()
        return leaf.grad, x.grad if x.retains_grad else None

    torch.testing.assert_close(run(dovetail.compile(fn)), run(fn))


def test_only_what_passes_by_is_refused():
    """Another piece of the same node, and what was detached on the way, have gradients of their own."""

    def fn(x):
        first, second = (x * 2).split(2)
        return first, second.sin(), first.detach().cos() + x[:2]

    def run(call):
        leaf = torch.ones(4, requires_grad=True)
        outputs = call(leaf)
        outputs[0].register_hook(lambda g: g * 10)
        sum(map(torch.sum, outputs)).backward()
        return leaf.grad

    torch.testing.assert_close(run(dovetail.compile(fn)), run(fn))


def test_a_hook_on_a_view_that_was_written_to():
    """PyTorch crashes where a hook is put on a view whose history it has yet to make."""

    def fn(x):
        view = x[0]
        view.mul_(2)
        return view

    def run(call):
        leaf = torch.ones(3, 4, requires_grad=True)
        view = call(leaf * 1)
        view.register_hook(lambda g: g * 3)
        view.sum().backward()
        return leaf.grad

    torch.testing.assert_close(run(dovetail.compile(fn)), run(fn))


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("make", [lambda x: x, lambda x: x[1:]], ids=["a leaf", "a view"])
def test_hooks_put_on_an_input_later_see_only_gradients(make, again):
    """PyTorch's engine visits all inputs of a node, also those that the result has nothing of."""

    def run(fn):
        seen, leaves = [], [torch.ones(3, 4, requires_grad=True) for _ in range(2)]
        x, y = map(make, leaves)
        out = fn(x, y)
        handle = y.register_hook(lambda g: seen.append(g.clone()) or g * 3)
        first = torch.autograd.grad(out[0].sum(), leaves, retain_graph=True, create_graph=again, allow_unused=True)
        second = torch.autograd.grad(out[1].sum(), leaves, retain_graph=True, create_graph=again, allow_unused=True)
        handle.remove()
        return seen, first, second, torch.autograd.grad(sum(map(torch.sum, out)), leaves)

    def fn(x, y):
        return x.sin(), (x * y).exp()

    torch.testing.assert_close(run(dovetail.compile(fn)), run(fn))

"""Guards that the user does not want checked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dovetail

X = torch.arange(6.0).reshape(2, 3)
SCALE = 2.0


def entries(fn: Any) -> int:
    return len(fn._dovetail_dispatcher.entries)


def compiled(fn: Any, wanted: Any, **more: Any) -> Any:
    return dovetail.compile(fn, options={"guard_filter_fn": wanted, **more})


def by_global(x, k):
    return x * SCALE + k


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = torch.nn.Dropout(0.5), 2.0
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.inner(x) * self.scale * self.weight


def test_a_global_that_nobody_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    unchecked = compiled(by_global, torch.compiler.skip_guard_on_globals_unsafe)
    checked = dovetail.compile(by_global)
    unchecked(X, 1.0), checked(X, 1.0)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert torch.equal(unchecked(X, 1.0), X * 2 + 1) and entries(unchecked) == 1
    assert torch.equal(checked(X, 1.0), X * 3 + 1) and entries(checked) == 2
    assert torch.equal(unchecked(X, 5.0), X * 3 + 5), "the argument is looked at"


FILTERS = ("skip_all_guards_unsafe", "keep_tensor_guards_unsafe", "keep_portable_guards_unsafe")


@pytest.mark.parametrize("wanted", FILTERS)
def test_tensors_are_always_checked(wanted: str) -> None:
    keeps = getattr(torch.compiler, wanted, None)
    if keeps is None:
        pytest.skip(f"this PyTorch has no {wanted}")
    fn = compiled(by_global, keeps)
    assert torch.equal(fn(X, 1.0), X * SCALE + 1)
    assert torch.equal(fn(X, 7.0), X * SCALE + 1), "numbers are not looked at"
    for other in (torch.ones(5, 7), torch.ones(3, dtype=torch.float64), torch.ones(2, 3, requires_grad=True)):
        assert fn(other, 1.0).shape == other.shape and fn(other, 1.0).requires_grad == other.requires_grad
        torch.testing.assert_close(fn(other, 1.0), other * SCALE + 1)
    with torch.no_grad():
        assert not fn(torch.ones(2, 3, requires_grad=True), 1.0).requires_grad


def test_attributes_of_modules() -> None:
    for wanted, own, builtin in (
        (torch.compiler.skip_guard_on_all_nn_modules_unsafe, False, False),
        (torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe, True, False),
        (lambda guards: [True] * len(guards), True, True),
    ):
        model = Scaled().eval()
        fn = compiled(model, wanted)
        torch.testing.assert_close(fn(X), X * 2)
        model.scale = 3.0
        torch.testing.assert_close(fn(X), X * (3 if own else 2))
        model.scale = 2.0
        model.inner.training, model.inner.p = True, 1.0
        torch.testing.assert_close(fn(X), X * (0 if builtin else 2))


def test_what_a_filter_is_shown() -> None:
    seen: list[Any] = []

    def wanted(guards):
        seen.extend(guards)
        return [True] * len(guards)

    model = Scaled().eval()
    torch.testing.assert_close(compiled(model, wanted)(X), X * 2)
    found = {(guard.name, guard.guard_type): guard for guard in seen}
    tensor = found["x", "TENSOR_MATCH"]
    assert tensor.has_value and tensor.value is X and not tensor.is_global
    assert not tensor.orig_guard.source.is_unspecialized_nn_module()
    scale = found["self.scale", "EQUALS_MATCH"]
    assert scale.value == 2.0 and scale.orig_guard.source.is_unspecialized_nn_module()
    assert not scale.orig_guard.source.is_unspecialized_builtin_nn_module()
    assert any(g.orig_guard.source.is_unspecialized_builtin_nn_module() for g in seen)
    assert any(g.value is model.weight and g.guard_type == "TENSOR_MATCH" for g in seen)
    seen.clear()
    compiled(by_global, wanted)(X, 1.0)
    assert [g.value for g in seen if g.is_global and g.guard_type == "EQUALS_MATCH"] == [SCALE]


def test_a_filter_counts_after_graph_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x):
        x = x + 1
        dovetail.graph_break()
        return x * SCALE

    fn = compiled(broken, torch.compiler.skip_guard_on_globals_unsafe)
    fn(X)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert torch.equal(fn(X), (X + 1) * 2)


def test_filters_and_other_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def backend(gm, inputs, **more):
        seen.append(more)
        return gm

    with dovetail.install():
        for chosen in ("eager", "inductor", backend):
            options = {"guard_filter_fn": torch.compiler.skip_guard_on_globals_unsafe}
            fn = torch.compile(by_global, backend=chosen, options=options)
            with monkeypatch.context() as patch:
                fn(X, 1.0)
                patch.setitem(globals(), "SCALE", 3.0)
                assert torch.equal(fn(X, 1.0), X * 2 + 1) and len(options) == 1
    assert seen == [{}]


def test_it_is_never_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    with dovetail.config.patch(warm_start=True):
        for _ in range(2):
            fn = compiled(by_global, torch.compiler.skip_guard_on_globals_unsafe)
            fn(X, 1.0)
            assert fn._dovetail_dispatcher.entries[0].kept == ""


@pytest.mark.parametrize("wrong", [lambda g: [], lambda g: None, lambda g: [1] * len(g), lambda g: 1 / 0])
def test_wrong_filters(wrong: Any) -> None:
    with pytest.raises(dovetail.InvalidArgument, match="guard_filter_fn"):
        compiled(by_global, wrong)(X, 1.0)
    with pytest.raises(dovetail.InvalidArgument, match="must be a function"):
        compiled(by_global, "all")

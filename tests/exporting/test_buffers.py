"""Programs that give their buffers other tensors: results, buffers and who shares memory are eager's in each call."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from torch import nn

import dovetail
from dovetail.errors import GraphBreakError

CALLS = [torch.randn(4, 4) for _ in range(4)]


class Model(nn.Module):
    def __init__(self, program):
        super().__init__()
        self.program = program
        self.register_buffer("a", torch.zeros(4))
        self.register_buffer("b", torch.ones(4), persistent=False)
        self.inner = nn.Sequential(nn.BatchNorm1d(4))
        self.table = torch.zeros(4)

    def forward(self, x):
        return self.program(self, x)


def keeps(m, x):
    m.a = x.sum(0)
    return x * 2


def gives_it(m, x):
    m.a = x.sum(0)
    return m.a, m.a[1:]


def reads_the_old_one_later(m, x):
    old = m.a
    m.a = x.sum(0)
    return m.a + old * 2


def gives_the_old_one(m, x):
    old = m.a
    m.a = x.sum(0)
    return old, old[1:], m.a


def writes_to_the_old_one(m, x):
    old = m.a
    m.a = old + x.sum(0)
    old.add_(5)
    return old


def swaps(m, x):
    m.a, m.b = m.b, m.a
    m.a.add_(x[0])
    return x + m.a * 10 + m.b


def keeps_an_argument(m, x):
    m.a = x[0]
    m.a.mul_(2)
    return x.sum()


def keeps_another_buffer(m, x):
    m.a = m.b
    m.b.add_(x[0])
    return m.a + 0


def keeps_one_twice(m, x):
    m.a = m.b = x.sum(0)
    return m.a.add_(1)


def keeps_a_parameters_memory(m, x):
    m.a = m.inner[0].weight.detach()
    return m.a + x


def exchanges_often(m, x):
    m.a = m.a + 1
    m.a = m.a * 2
    return m.a.add_(x[0]).clone()


def puts_it_back(m, x):
    old, m.a = m.a, x.sum(0)
    y = m.a * 2
    m.a = old
    return y


def of_a_part(m, x):
    m.inner[0].running_mean = 0.9 * m.inner[0].running_mean + 0.1 * x.mean(0)
    return m.inner(x)


def with_a_history(m, x):
    m.a = (m.inner[0].weight * x).sum(0)
    return m.a * 2


EXCHANGED = [
    keeps, gives_it, reads_the_old_one_later, gives_the_old_one, writes_to_the_old_one, swaps, keeps_an_argument,
    keeps_another_buffer, keeps_one_twice, keeps_a_parameters_memory, exchanges_often, puts_it_back, of_a_part,
    with_a_history,
]  # fmt: skip


def told(model, calls):
    """Of each call: results, buffers, and whose memory is whose. In the end, what the results are by then."""
    steps, held = [], []
    for x in map(torch.clone, calls):
        results = model(x)
        results = results if isinstance(results, tuple) else (results,)
        held += results
        known = [x, *results, *model.buffers(), *model.parameters()]
        places = [t.untyped_storage().data_ptr() for t in known]
        shared = [[p == q for q in places] for p in places]
        steps.append(([(t.detach().clone(), t.requires_grad, t.stride()) for t in known], shared))
    return steps, [t.detach() for t in held]


def assert_told_same(found, expected):
    leaves = [torch.utils._pytree.tree_flatten(part) for part in (found, expected)]
    assert leaves[0][1] == leaves[1][1]
    for one, other in zip(leaves[0][0], leaves[1][0], strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize("program", EXCHANGED)
def test_exchanged_buffers(program, tmp_path):
    model = Model(program)
    made = dovetail.export(copy.deepcopy(model), (CALLS[0],))
    made.save(tmp_path / "p")
    read = dovetail.ExportedProgram.load(tmp_path / "p").module()
    compiled = dovetail.compile(copy.deepcopy(read), backend="eager")
    expected = told(model, CALLS)
    for way in (read, made.module(), compiled):
        assert_told_same(told(way, CALLS), expected)


@pytest.mark.parametrize("program", EXCHANGED)
def test_exchanged_buffers_are_written_to_in_torchs_programs(program):
    model = Model(program)
    module = dovetail.export(copy.deepcopy(model), (CALLS[0],)).to_torch().module()
    for x in CALLS:
        expected, found = (torch.utils._pytree.tree_leaves(m(x.clone())) for m in (model, module))
        expected += model.buffers()
        found += [module.get_buffer(name) for name, _ in model.named_buffers()]
        torch.testing.assert_close(found, expected)


def test_modules_with_exchanged_buffers_are_copied():
    module = dovetail.export(Model(reads_the_old_one_later), (CALLS[0],)).module()
    module(CALLS[0])
    expected, other = module.a.clone(), copy.deepcopy(module)
    other(CALLS[1])
    assert module.a.equal(expected) and not other.a.equal(expected)


def another_shape(m, x):
    m.a = x


def another_dtype(m, x):
    m.a = x.sum(0).double()


def nothing(m, x):
    m.a = None


def one_more(m, x):
    m.register_buffer("c", x.sum(0))


def one_less(m, x):
    del m.a


def a_parameter(m, x):
    m.inner[0].weight = nn.Parameter(x.sum(0))


def an_attribute(m, x):
    m.table = x.sum(0)


def elsewhere(m, x):
    OTHER.running_mean = x.mean(0)


def a_gradient(m, x):
    m.inner[0].weight.grad = x.sum(0)


def a_smaller_one(m, x):
    m.a.unsqueeze_(0)


OTHER = nn.BatchNorm1d(4)
REFUSED = {
    another_shape: "the buffer a, float32[4] on cpu, gets a tensor that is float32[4, 4] on cpu",
    another_dtype: "the buffer a, float32[4] on cpu, gets a tensor that is float64[4] on cpu",
    nothing: "the program removes the buffer a",
    one_more: "the program adds the buffer c",
    one_less: "the program removes the buffer a",
    a_parameter: "self.inner._modules['0']._parameters",
    an_attribute: "self.table",
    elsewhere: "changes what is outside of it: OTHER._buffers",
    a_gradient: "grad",
    a_smaller_one: "a",
}


@pytest.mark.parametrize("program", REFUSED, ids=lambda p: p.__name__)
def test_stores_that_no_graph_has(program):
    model = Model(program)
    with pytest.raises(GraphBreakError, match=re.escape(REFUSED[program])):
        dovetail.export(model, (CALLS[0],))
    assert [*model._buffers] == ["a", "b"] and model.a.shape == (4,) and OTHER.running_mean.sum() == 0


def test_a_buffer_of_a_size_that_varies():
    model = Model(keeps)
    model.a = torch.zeros(6)
    with pytest.raises(GraphBreakError, match=re.escape("gets a tensor that is float32[n]")):
        dovetail.export(model, (torch.randn(3, 6),), None, ({1: "n"},))


def test_a_buffer_with_two_names():
    model = Model(keeps)
    model.inner[0].running_mean = model.a
    with pytest.raises(GraphBreakError, match=r"a is inner\.0\.running_mean as well, which keeps the old tensor"):
        dovetail.export(model, (CALLS[0],))


def test_two_names_that_are_exchanged_together():
    def both(m, x):
        m.a = m.b = m.a + m.b + x[0]
        return m.a * 2

    model = Model(both)
    model.b = model.a
    module = dovetail.export(copy.deepcopy(model), (CALLS[0],)).module()
    assert_told_same(told(module, CALLS), told(model, CALLS))


def test_a_buffer_that_is_an_attribute_too():
    for program in (lambda m, x: m.a + keeps(m, x) + m.table, lambda m, x: (keeps(m, x), m.table)):
        model = Model(program)
        model.table = model.a
        with pytest.raises(GraphBreakError, match=r"a is self\.table as well, which keeps the old tensor"):
            dovetail.export(model, (CALLS[0],))


def test_a_part_with_two_names():
    model = Model(of_a_part)
    model.again = model.inner[0]
    module = dovetail.export(copy.deepcopy(model), (CALLS[0],)).module()
    for x in CALLS:
        assert module(x).equal(model(x)) and module.again.running_mean is module.inner.get_submodule("0").running_mean


def test_methods_exchange_buffers_of_their_module():
    model = Model(keeps)
    module = dovetail.export(copy.deepcopy(model).forward, (CALLS[0],)).module()
    assert_told_same(told(module, CALLS), told(model, CALLS))


def test_a_module_in_a_closure_is_no_part_of_a_function():
    with pytest.raises(GraphBreakError, match=r"OTHER_MODEL\._buffers"):
        dovetail.export(lambda x: keeps(OTHER_MODEL, x), (CALLS[0],))


OTHER_MODEL = Model(keeps)

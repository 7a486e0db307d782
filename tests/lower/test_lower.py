"""The walk over the graph: names, layouts, library calls, inputs, outputs and mutation."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F

from dovetail.errors import InternalError, Unsupported
from dovetail.ir import dims
from dovetail.ir.aten import AtenGraph
from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import BufferRef, Group, LibraryCall, View
from dovetail.ir.spec import verify
from dovetail.lower import lower
from dovetail.options import Options
from tests.ops.checking import check, lowered

aten = torch.ops.aten


def graph_of(*inputs: torch.Tensor) -> tuple[torch.fx.Graph, list[torch.fx.Node]]:
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"p{k}") for k in range(len(inputs))]
    for node, tensor in zip(nodes, inputs, strict=True):
        node.meta["val"] = tensor
    return graph, nodes


def call(graph: torch.fx.Graph, target: object, *args: object) -> torch.fx.Node:
    node = graph.call_function(target, args)
    node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
    return node


def test_each_operator_is_one_group():
    program = lowered(lambda x: (x + 1).exp() * 2, torch.randn(3, 4))
    assert [item.name for item in program.items] == ["add_0", "exp_1", "mul_2"]
    assert [b.name for b in program.inputs] == ["a0"]
    assert [o.value.kind for o in program.outputs] == ["output"]


def test_names_are_unique():
    program = lowered(lambda x: F.layer_norm(x.softmax(-1), (4,)).t().cumsum(0) + x.t(), torch.randn(3, 4))
    verify(program)
    names = [item.name for item in program.items if not isinstance(item, View)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("make", [
    lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), lambda: torch.randn(4, 5).t(),
])
def test_the_last_range_walks_the_smallest_stride(make):
    program = lowered(lambda x: x * 2, make())
    (group,) = program.items
    (store,) = group.statements()
    fastest = dims.as_symbol(group.outer[-1])
    axis = next(d for d, i in enumerate(store.index) if fastest in dims.symbols(i))
    assert store.buffer.strides[axis] == 1


def test_reduced_ranges_follow_memory():
    program = lowered(lambda x: x.sum((0, 1)), torch.randn(4, 5).t())
    assert [r.terms[0][0][0].name for r in program.items[0].loops[0].inner] == ["j1", "j0"]


def test_an_operator_without_a_row_is_called_as_recorded():
    program = check(lambda x: torch.sort(x + 1, dim=0, descending=True), torch.randn(5, 3), loops=False)
    item = program.items[-1]
    assert isinstance(item, LibraryCall)
    assert item.operator is aten.sort.default
    assert isinstance(item.args[0], BufferRef)
    assert len(item.results) == 2


def test_lists_of_tensors_reach_libraries():
    check(lambda x, i: aten.index_put(x, [i, None], x[0] * 2), torch.randn(4, 3), torch.tensor([1]), loops=False)
    check(lambda x: torch.einsum("ij,kj->ik", x, x + 1), torch.randn(4, 3), loops=False)


def test_library_results_of_several_kinds():
    check(lambda x: torch.linalg.qr(x * 2), torch.randn(4, 3), loops=False)
    check(lambda x: F.scaled_dot_product_attention(x, x * 2, x), torch.randn(1, 2, 4, 8), loops=False)
    check(lambda x: x.topk(2)[1], torch.randn(4, 3), loops=False)


def test_complex_tensors_go_to_libraries():
    check(lambda x: (x * 2 + x.conj()).abs() + 1, torch.randn(4, dtype=torch.complex64), loops=False)
    check(lambda x: torch.fft.rfft(x + 1).real * 2, torch.randn(8), loops=False)


def test_what_eager_would_copy_for_a_library_is_copied():
    program = check(lambda x: x.flip(0).cumsum(0), torch.randn(4, 3), loops=False)
    assert [type(item) for item in program.items] == [Group, LibraryCall]


def test_constants_read_by_libraries_take_memory():
    check(lambda x: torch.ones(3, 3).cumsum(0) + x, torch.randn(3, 3), loops=False)
    check(lambda x: torch.ones(3, 1).expand(3, 4).cumsum(0) + x, torch.randn(3, 4), loops=False)


def test_convolution_keeps_eagers_layouts():
    x = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    check(lambda t, w: F.conv2d(t.relu(), w).sigmoid(), x, torch.randn(4, 3, 3, 3), loops=False)


def test_outputs_that_are_no_tensors():
    graph, (x,) = graph_of(torch.randn(3))
    graph.output((call(graph, aten.neg.default, x), 7, None))
    assert [o.value for o in lower(AtenGraph(graph), Options()).outputs[1:]] == [7, None]


def test_mutated_inputs_are_written_from_memory_of_their_own():
    """a, b = b, a: neither may be written before the other is read."""
    x, y = torch.arange(3.0), torch.arange(3.0) + 10
    graph, (a, b) = graph_of(x, y)
    graph.output(())
    program = lower(AtenGraph(graph, mutated=((0, b), (1, a))), Options())
    verify(program)
    evaluate(program, [x, y])
    assert x.tolist() == [10, 11, 12]
    assert y.tolist() == [0, 1, 2]


def test_constants_are_named_by_their_buffers():
    graph, (x, table) = graph_of(torch.randn(3), torch.arange(3.0))
    graph.output((call(graph, aten.add.Tensor, x, table),))
    constant = torch.arange(3.0)
    program = lower(AtenGraph(graph, constants={"p1": constant}), Options())
    assert program.constants == {"a1": constant}
    torch.testing.assert_close(evaluate(program, [torch.ones(3)])[0], torch.tensor([1.0, 2, 3]))


def test_getitem_picks_results():
    graph, (x,) = graph_of(torch.randn(3, 4))
    both = call(graph, aten.max.dim, x, 1)
    picked = graph.call_function(operator.getitem, (both, 1))
    picked.meta["val"] = both.meta["val"][1]
    graph.output((picked,))
    program = lower(AtenGraph(graph), Options())
    value = torch.randn(3, 4)
    torch.testing.assert_close(evaluate(program, [value])[0], value.argmax(1))


def test_as_strided_counts_from_the_start_of_the_storage():
    check(lambda t: t.as_strided((2, 2), (1, 2), 1) * 2, torch.randn(10)[3:], loops=True)
    check(lambda t: (t * 2).as_strided((2, 2), (1, 2), 1).exp(), torch.randn(10), loops=True)


def test_sparse_tensors_are_refused():
    graph, (x,) = graph_of(torch.eye(3).to_sparse())
    graph.output((x,))
    with pytest.raises(Unsupported, match="strided") as caught:
        lower(AtenGraph(graph), Options())
    assert caught.value.code == "sparse-tensor"


def test_a_graph_that_breaks_the_contract_is_an_internal_error():
    graph, (x,) = graph_of(torch.randn(3))
    graph.output((graph.call_method("exp", (x,)),))
    with pytest.raises(InternalError, match="call_method"):
        lower(AtenGraph(graph), Options())
    graph, (x,) = graph_of(torch.randn(3))
    graph.output((graph.call_function(torch.exp, (x,)),))
    with pytest.raises(InternalError, match="no ATen operator"):
        lower(AtenGraph(graph), Options())


def test_models_of_several_layers():
    block = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 8, 1), torch.nn.GroupNorm(2, 8), torch.nn.GELU(), torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(), torch.nn.Linear(8, 4), torch.nn.LayerNorm(4), torch.nn.LogSoftmax(-1),
    ).eval()
    check(lambda x: block(x), torch.randn(2, 3, 8, 8))


def test_a_transformer_layer():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu").eval()
    mask = torch.zeros(5, 5).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), float("-inf"))
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        check(lambda x: layer(x, src_mask=mask), torch.randn(2, 5, 16))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)

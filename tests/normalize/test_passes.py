"""Each pass on small programs, as text before and after."""

from __future__ import annotations

import functools
import re
import textwrap

import pytest
import torch
import torch.nn.functional as F

from dovetail.ir.devices import GPU, TRAITS
from dovetail.normalize.interpret import interpreter
from dovetail.normalize.normalize import record
from dovetail.normalize.passes import epilogues
from dovetail.normalize.passes.biases import add_biases_apart
from dovetail.normalize.passes.channels_last import prefer_channels_last
from dovetail.normalize.passes.common_subexpressions import merge_common
from dovetail.normalize.passes.dead_code import remove_dead
from dovetail.normalize.passes.max_pools import write_out_pools
from dovetail.normalize.passes.no_ops import fold
from dovetail.normalize.passes.uploads import upload_together
from dovetail.normalize.text import aten_text
from dovetail.ops.fake import FakeTensor, to_fake
from dovetail.ops.fake.rules import images
from dovetail.options import Options
from tests.normalize.harness import check, functional, graph_of
from tests.traits import give_host

X = torch.randn(4, 8)
W = torch.randn(8, 8)


def lines(text: str) -> list[str]:
    """Without result types and spacing."""
    return [_TYPE.sub("", line).strip() for line in textwrap.dedent(text).strip().splitlines()]


_TYPE = re.compile(r" +(NoneType|\(?[a-z]+\d*\[[\d, ]*\]( strides .*)?( meta)?)$")


def after(fn, *args, passes=(remove_dead,)):
    with torch.no_grad():
        aten = record(graph_of(fn, len(args)), [to_fake(a) for a in args])
    for apply in passes:
        apply(aten)
    aten.graph.lint()
    return lines("\n".join(line.strip() for line in aten_text(aten).splitlines()[1:]))


DEAD = {
    "unused": (lambda x: (x.sin(), x.cos())[1], """
        %cos = aten.cos(%x0)
        return (%cos)"""),
    "unused chain": (lambda x: (x.sin().view(-1).exp(), x + 1)[1], """
        %add = aten.add.Tensor(%x0, 1)
        return (%add)"""),
    "random stays": (lambda x: (torch.rand(3), x + 1)[1], """
        %rand = aten.rand([3], device=cpu, pin_memory=False)
        %add = aten.add.Tensor(%x0, 1)
        return (%add)"""),
    "unused write stays": (lambda x: (x.add_(1), None)[1], """
        %add = aten.add.Tensor(%x0, 1)
        mutates %x0 <- %add
        return ()
        output object None"""),
    "check stays": (lambda x: (torch._assert_async((x > 0).any()), x)[1], """
        %gt = aten.gt.Scalar(%x0, 0)
        %any_1 = aten.any(%gt)
        %_assert_async = aten._assert_async(%any_1)
        return ()
        output %x0"""),
}  # fmt: skip

COMMON = {
    "views": (lambda x, w: x @ w.t() + x.sin() @ w.t(), """
        %t = aten.t(%x1)
        %mm = aten.mm(%x0, %t)
        %sin = aten.sin(%x0)
        %mm_1 = aten.mm(%sin, %t)
        %add = aten.add.Tensor(%mm, %mm_1)
        return (%add)"""),
    "chains": (lambda x, w: x.sin().exp() * x.sin().exp(), """
        %sin = aten.sin(%x0)
        %exp = aten.exp(%sin)
        %mul = aten.mul.Tensor(%exp, %exp)
        return (%mul)"""),
    "numbers of different types": (lambda x, w: (x + 1) * (x + 1.0) * (x + True), """
        %add = aten.add.Tensor(%x0, 1)
        %add_1 = aten.add.Tensor(%x0, 1.0)
        %mul = aten.mul.Tensor(%add, %add_1)
        %add_2 = aten.add.Tensor(%x0, True)
        %mul_1 = aten.mul.Tensor(%mul, %add_2)
        return (%mul_1)"""),
    "signed zeros": (lambda x, w: (x + 0.0) * (x + -0.0), """
        %add = aten.add.Tensor(%x0, 0.0)
        %add_1 = aten.add.Tensor(%x0, -0.0)
        %mul = aten.mul.Tensor(%add, %add_1)
        return (%mul)"""),
    "random": (lambda x, w: torch.rand(2) + torch.rand(2), """
        %rand = aten.rand([2], device=cpu, pin_memory=False)
        %rand_1 = aten.rand([2], device=cpu, pin_memory=False)
        %add = aten.add.Tensor(%rand, %rand_1)
        return (%add)"""),
    "results stay apart": (lambda x, w: (x + 1, x + 1, (x + 1).sin()), """
        %add = aten.add.Tensor(%x0, 1)
        %add_1 = aten.add.Tensor(%x0, 1)
        %sin = aten.sin(%add)
        return (%add, %add_1, %sin)"""),
    "memory behind results stays apart": (lambda x, w: ((x + 1).t(), (x + 1).t()), """
        %add = aten.add.Tensor(%x0, 1)
        %t = aten.t(%add)
        %add_1 = aten.add.Tensor(%x0, 1)
        %t_1 = aten.t(%add_1)
        return (%t, %t_1)"""),
}  # fmt: skip

FOLD = {
    "view of view": (lambda x: x.view(-1).view(2, 16).sin(), """
        %view_1 = aten.view(%x0, [2, 16])
        %sin = aten.sin(%view_1)
        return (%sin)"""),
    "view back": (lambda x: x.view(-1).view(4, 8).sin(), """
        %sin = aten.sin(%x0)
        return (%sin)"""),
    "permutations": (lambda x: x.view(2, 2, 8).permute(1, 2, 0).transpose(0, 1).sin(), """
        %view = aten.view(%x0, [2, 2, 8])
        %transpose = aten.permute(%view, [2, 1, 0])
        %sin = aten.sin(%transpose)
        return (%sin)"""),
    "transposed twice": (lambda x: x.t().t().transpose(0, -1).transpose(0, 1).sin(), """
        %sin = aten.sin(%x0)
        return (%sin)"""),
    "copies": (lambda x: x.clone().to(torch.float64).to(torch.float32).clone().sin(), """
        %_to_copy = aten._to_copy(%x0, dtype=f64)
        %_to_copy_1 = aten._to_copy(%_to_copy, dtype=f32)
        %sin = aten.sin(%_to_copy_1)
        return (%sin)"""),
    "copy to another layout": (lambda x: x.t().contiguous().sin(), """
        %t = aten.t(%x0)
        %clone = aten.clone(%t, memory_format=contiguous_format)
        %sin = aten.sin(%clone)
        return (%sin)"""),
    "returned copy": (lambda x: x.clone(), """
        %clone = aten.clone(%x0)
        return (%clone)"""),
    "copy behind a returned view": (lambda x: x.clone().view(-1), """
        %clone = aten.clone(%x0)
        %view = aten.view(%clone, [32])
        return (%view)"""),
    "concatenation of one": (lambda x: torch.cat([x, x[:0]]).sin() + torch.cat([x], 1), """
        %slice_1 = aten.slice.Tensor(%x0, 0, 0, 0)
        %cat = aten.cat([%x0, %slice_1])
        %sin = aten.sin(%cat)
        %add = aten.add.Tensor(%sin, %x0)
        return (%add)"""),
    "returned concatenation": (lambda x: torch.cat([x]), """
        %cat = aten.cat([%x0])
        return (%cat)"""),
    "whole slices and expansions": (lambda x: x[:, 0:8][:].expand(4, 8).expand(-1, -1).sin(), """
        %sin = aten.sin(%x0)
        return (%sin)"""),
    "adding zero": (lambda x: (x + 0).sin(), """
        %add = aten.add.Tensor(%x0, 0)
        %sin = aten.sin(%add)
        return (%sin)"""),
    "write through a view": (lambda x: (lambda y: (y.view(-1).add_(1), y)[1])(x * 2).sin(), """
        %mul = aten.mul.Tensor(%x0, 2)
        %view = aten.view(%mul, [32])
        %add = aten.add.Tensor(%view, 1)
        %view_1 = aten.view(%add, [4, 8])
        %sin = aten.sin(%view_1)
        return (%sin)"""),
}  # fmt: skip


@pytest.mark.parametrize("case", DEAD)
def test_dead(case):
    fn, expected = DEAD[case]
    assert after(fn, X) == lines(expected)


@pytest.mark.parametrize("case", COMMON)
def test_common(case):
    fn, expected = COMMON[case]
    assert after(fn, X, W, passes=(merge_common, remove_dead)) == lines(expected)
    check(fn, X, W)


@pytest.mark.parametrize("case", FOLD)
def test_fold(case):
    fn, expected = FOLD[case]
    assert after(fn, X, passes=(fold, remove_dead)) == lines(expected)
    check(fn, X)


IMAGE = torch.randn(2, 3, 8, 8)
KERNEL = torch.randn(4, 3, 3, 3)
SQUARE = torch.randn(4, 4, 3, 3)


def test_channels_last():
    def fn(x, k, s):
        y = F.conv2d(x, k, padding=1).relu()
        return F.conv2d(y, s).flatten(1)

    expected = """
        %clone_default = aten.clone(%x0, memory_format=channels_last)
        %convolution = aten.convolution(%clone_default, %x1, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        %relu = aten.relu(%convolution)
        %convolution_1 = aten.convolution(%relu, %x2, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        %clone_default_1 = aten.clone(%convolution_1, memory_format=contiguous_format)
        %view = aten.view(%clone_default_1, [2, 144])
        return (%view)"""
    apply = functools.partial(prefer_channels_last, options=Options())
    assert after(fn, IMAGE, KERNEL, SQUARE, passes=(apply,)) == lines(expected)


def test_eager_layouts_are_restored_where_a_value_is_made():
    expected = """
        %clone_default = aten.clone(%x0, memory_format=channels_last)
        %convolution = aten.convolution(%clone_default, %x1, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        %clone_default_1 = aten.clone(%convolution, memory_format=contiguous_format)
        %relu = aten.relu(%convolution)
        %sum_1 = aten.sum(%relu)
        return (%clone_default_1, %sum_1)"""
    apply = functools.partial(prefer_channels_last, options=Options())
    fn = lambda x, k: (lambda y: (y, y.relu().sum()))(F.conv2d(x, k, padding=1))
    assert after(fn, IMAGE, KERNEL, passes=(apply,)) == lines(expected)


def test_operators_that_are_not_listed_get_eager_layouts_on_a_gpu_too(monkeypatch):
    monkeypatch.setattr(images, "_computed_last", lambda x, *_: images.suggests_channels_last(x))  # as cuDNN does

    def fn(x, k, g, w, mean, rstd):
        rows = F.conv2d(x, k, padding=1).flatten(2)
        return torch.ops.aten.native_group_norm_backward(g, rows, mean, rstd, w, 2, 4, 64, 2, [True, True, False])[:2]

    def there(*sizes):
        return FakeTensor(sizes, torch.empty(sizes).stride(), torch.bfloat16, torch.device("cuda:0"))

    sizes = ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 64), (4,), (2, 2), (2, 2))
    with torch.no_grad():
        graph = record(graph_of(fn, len(sizes)), [there(*s) for s in sizes])
        prefer_channels_last(graph, Options())
    (convolved,) = (n for n in graph.graph.nodes if n.target is torch.ops.aten.convolution.default)
    (gradient,) = (n for n in graph.graph.nodes if n.target is torch.ops.aten.native_group_norm_backward.default)
    assert convolved.meta["val"].stride() == (256, 1, 32, 4)
    assert [n.meta["val"].stride() for n in gradient.args[:2]] == [(256, 64, 1)] * 2


def test_numbers_from_the_cpu():
    """What the CPU computes comes first, and goes elsewhere at once."""

    def fn(p, q, step, rate):
        p = p * 2
        scale = 1 - step
        return p / scale, q * scale + p.sum(), q + rate, p.cpu() * step

    there = torch.empty(8, device="meta")
    expected = """
        %rsub = aten.rsub.Scalar(%x2, 1)
        %expand_default = aten.expand(%rsub, [16])
        %expand_default_1 = aten.expand(%x3, [16])
        %stack_default = aten.stack([%expand_default, %expand_default, %expand_default_1])
        %_to_copy_default = aten._to_copy(%stack_default, device=meta, non_blocking=True)
        %select_int = aten.select.int(%_to_copy_default, 1, 0)
        %select_int_1 = aten.select.int(%select_int, 0, 1)
        %select_int_2 = aten.select.int(%select_int, 0, 2)
        %mul = aten.mul.Tensor(%x0, 2)
        %div = aten.div.Tensor(%mul, %select_int_1)
        %mul_1 = aten.mul.Tensor(%x1, %select_int_1)
        %sum_1 = aten.sum(%mul)
        %add = aten.add.Tensor(%mul_1, %sum_1)
        %add_1 = aten.add.Tensor(%x1, %select_int_2)
        %_to_copy = aten._to_copy(%mul, dtype=f32, layout=strided, device=cpu)
        %mul_2 = aten.mul.Tensor(%_to_copy, %x2)
        return (%div, %add, %add_1, %mul_2)"""
    one = torch.tensor(1.0)
    assert after(fn, there, there, one, one, passes=(upload_together,)) == lines(expected)


NETWORKS = {
    "conv": lambda x, k, s: F.conv2d(x, k),
    "residual": lambda x, k, s: (lambda y: F.relu(y + F.conv2d(y, s, padding=1)))(F.conv2d(x, k)),
    "pooled": lambda x, k, s: F.adaptive_avg_pool2d(F.max_pool2d(F.conv2d(x, k), 2), 1).flatten(1),
    "batch norm": lambda x, k, s: F.batch_norm(F.conv2d(x, k), torch.zeros(4), torch.ones(4)),
    "concatenated": lambda x, k, s: torch.cat([x, F.conv2d(x, k, padding=1)], 1),
    "views returned": lambda x, k, s: (lambda y: (y, y[:, 0], y.permute(0, 2, 3, 1)))(F.conv2d(x, k)),
    "reshaped": lambda x, k, s: F.conv2d(x, k).reshape(2, -1).softmax(1),
    "sliced": lambda x, k, s: F.conv2d(x[:, :, ::2], k, padding=1)[:, 1:].sum((2, 3)),
    "interpolated": lambda x, k, s: F.interpolate(F.conv2d(x, k), scale_factor=2),
    "norms": lambda x, k, s: F.layer_norm(F.group_norm(F.conv2d(x, k), 2), (6, 6)),
    "written": lambda x, k, s: (lambda y: (y[:, 0].mul_(2), y))(F.conv2d(x, k)),
    "input written": lambda x, k, s: x.copy_(F.conv2d(x, k, padding=1)[:, :3]),
}


@pytest.mark.parametrize("case", NETWORKS)
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last"])
def test_networks_return_what_eager_returns(case, last):
    x = IMAGE.contiguous(memory_format=torch.channels_last) if last else IMAGE
    check(NETWORKS[case], x, KERNEL, SQUARE, exact=False)


def test_biases_on_a_gpu():
    """A bias is left to the kernel that reads the product, if a kernel does."""
    left, right, bias = (torch.empty(sizes, device="meta") for sizes in ((4, 8), (8, 8), (8,)))

    plus = torch.addmm
    fn = lambda x, w, b: (plus(b, x, w).view(2, 2, 8).relu(), plus(b, x, w).softmax(1), plus(b, x, w, beta=2).exp())
    expected = """
        %mm_default = aten.mm(%x0, %x1)
        %add_tensor = aten.add.Tensor(%mm_default, %x2)
        %view = aten.view(%add_tensor, [2, 2, 8])
        %relu = aten.relu(%view)
        %addmm_1 = aten.addmm(%x2, %x0, %x1)
        %_softmax = aten._softmax(%addmm_1, 1, False)
        %addmm_2 = aten.addmm(%x2, %x0, %x1, beta=2)
        %exp = aten.exp(%addmm_2)
        return (%relu, %_softmax, %exp)"""
    assert after(fn, left, right, bias, passes=(add_biases_apart,)) == lines(expected)
    halves = (t.half() for t in (left, right, bias))
    assert "aten.addmm" in after(lambda x, w, b: plus(b, x, w).relu(), *halves, passes=(add_biases_apart,))[0]


def test_gradients_of_biases_are_sums(monkeypatch):
    """Where PyTorch would add them up in a kernel of its own."""
    monkeypatch.setitem(TRAITS, "meta", TRAITS[GPU])
    image, kernel = IMAGE.to("meta"), KERNEL.to("meta")

    def fn(g, x, w):
        settings = [1, 1], [1, 1], [1, 1], False, [0, 0], 1
        return torch.ops.aten.convolution_backward(g, x, w, [w.shape[0]], *settings, [False, True, True])

    gradient = torch.empty(image.shape[0], 4, *image.shape[2:], device="meta")
    found = after(fn, gradient, image, kernel, passes=(add_biases_apart,))
    assert "[False, True, False]" in found[0] and found[1] == "%sum_dim_int_list = aten.sum.dim_IntList(%x0, [0, 2, 3])"
    gradient = torch.randn(image.shape[0], 4, *image.shape[2:])
    assert "[False, True, True]" in after(fn, gradient, IMAGE, KERNEL, passes=(add_biases_apart,))[0]


def test_what_cudnn_finishes(monkeypatch):
    """A batch norm whose statistics are given, and a relu, that nobody else reads the convolution of."""
    monkeypatch.setattr(epilogues, "gains", lambda node: True)  # whether cuDNN does it only a GPU can say
    image, kernel, channels = (t.to("meta") for t in (IMAGE, KERNEL, torch.empty(4)))

    def fn(x, w, c):
        y = F.conv2d(x, w, c, padding=1)
        return F.batch_norm(y, c, c, c, c).relu()

    expected = """
        %add_tensor = aten.add.Tensor(%x2, 1e-05)
        %rsqrt_default = aten.rsqrt(%add_tensor)
        %mul_tensor = aten.mul.Tensor(%x2, %rsqrt_default)
        %sub_tensor = aten.sub.Tensor(%x2, %x2)
        %mul_tensor_1 = aten.mul.Tensor(%sub_tensor, %mul_tensor)
        %sub_tensor_1 = aten.sub.Tensor(%x2, %mul_tensor_1)
        %view_default = aten.view(%mul_tensor, [-1, 1, 1, 1])
        %mul_tensor_2 = aten.mul.Tensor(%x1, %view_default)
        %cudnn = aten.cudnn_convolution_relu(%x0, %mul_tensor_2, %sub_tensor_1, [1, 1], [1, 1], [1, 1], 1)
        return (%cudnn)""".replace("%cudnn", "%cudnn_convolution_relu_default")
    apply = functools.partial(epilogues.let_cudnn_finish, options=Options())
    assert after(fn, image, kernel, channels, passes=(remove_dead, apply)) == lines(expected)
    for kept in (
        lambda x, w, c: (lambda y: (y, F.batch_norm(y, c, c, c, c).relu()))(F.conv2d(x, w)),
        lambda x, w, c: (lambda y: (y, y.relu()))(F.batch_norm(F.conv2d(x, w), c, c)),
        lambda x, w, c: F.batch_norm(F.conv2d(x, w), None, None, training=True).relu(),
        lambda x, w, c: F.batch_norm(F.conv2d(x, w), c, c).sigmoid(),
    ):
        assert "cudnn" not in "".join(after(kept, image, kernel, channels, passes=(remove_dead, apply)))


def _residual(x, w, v, b, mean, var):
    return (F.batch_norm(F.conv2d(x, w, b, padding=1), mean, var, var, mean) + v).relu()


def _projected(x, w, v, b, mean, var):
    y = F.batch_norm(F.conv2d(x, w, b, padding=1), mean, var, var, mean)
    return (F.batch_norm(F.conv2d(x, w + 1, b, padding=1), var, var, None, mean, eps=0.1) + y).relu()


def _normed(x, w, v, b, mean, var):
    return F.batch_norm(F.conv2d(x, w, b, 2), mean, var, var, mean, eps=0.1).relu()


def _plain(x, w, v, b, mean, var):
    return F.batch_norm(F.conv2d(x, w, None, 2), mean, var).relu()


def _finished(fn, args):
    graph = record(graph_of(fn, len(args)), [to_fake(t) for t in args])
    remove_dead(graph)
    epilogues.let_cudnn_finish(graph, Options())
    return graph


@pytest.mark.parametrize(
    ("fn", "added", "convolutions"), [(_plain, 0, 1), (_normed, 0, 1), (_residual, 1, 1), (_projected, 1, 2)]
)
def test_what_cudnn_finishes_is_the_same(monkeypatch, fn, added, convolutions):
    monkeypatch.setattr(epilogues, "gains", lambda node: True)

    def plain(x, w, bias, stride, padding, dilation, groups):
        return F.conv2d(x, w, bias, stride, padding, dilation, groups).relu()

    def summed(x, w, z, alpha, bias, stride, padding, dilation, groups):
        assert alpha is None
        return (F.conv2d(x, w, bias, stride, padding, dilation, groups) + z).relu()

    last = torch.channels_last
    image = IMAGE.contiguous(memory_format=last)
    other = torch.randn_like(F.conv2d(image, KERNEL, padding=1)).contiguous(memory_format=last)
    args = (image, KERNEL, other, *torch.randn(2, 4), torch.rand(4))
    doubles = {
        torch.ops.aten.cudnn_convolution_relu.default: plain,
        torch.ops.aten.cudnn_convolution_add_relu.default: summed,
    }
    with torch.no_grad():
        graph = _finished(fn, args)
        (node,) = (n for n in graph.graph.nodes if n.target in doubles)
        left = [n for n in graph.graph.nodes if n.target is torch.ops.aten.convolution.default]
        assert (doubles[node.target] is summed, len(left) + 1) == (bool(added), convolutions)
        node.target = doubles[node.target]
        (found,) = interpreter(graph)(*args)
    torch.testing.assert_close(found, fn(*args), rtol=1e-4, atol=1e-5)


def test_sums_that_cudnn_does_not_finish(monkeypatch):
    """What somebody else reads too, what is another size, what is scaled, what has its channels elsewhere."""
    monkeypatch.setattr(epilogues, "gains", lambda node: True)
    image = IMAGE.contiguous(memory_format=torch.channels_last)
    norm = lambda x, w, b: F.batch_norm(F.conv2d(x, w), b, b)
    other = torch.empty_like(norm(image, KERNEL, torch.rand(4)))
    for kept in (
        lambda x, w, v, b: (lambda y: (y, (y + v).relu()))(norm(x, w, b)),
        lambda x, w, v, b: (lambda y: (y, y.relu()))(norm(x, w, b) + v),
        lambda x, w, v, b: torch.add(norm(x, w, b), v, alpha=2).relu(),
        lambda x, w, v, b: (norm(x, w, b) + v[:, :1]).relu(),
        lambda x, w, v, b: (norm(x, w, b) + v.contiguous()).relu(),
        lambda x, w, v, b: (norm(x, w, b) + 1).relu(),
    ):
        with torch.no_grad():
            graph = _finished(kept, (image, KERNEL, other, torch.rand(4)))
        assert not any("cudnn" in str(n.target) for n in graph.graph.nodes)


@pytest.fixture
def meta_as_gpu(monkeypatch):
    monkeypatch.setitem(TRAITS, "meta", TRAITS[GPU])


def test_max_pools_on_a_gpu(meta_as_gpu):
    image = torch.empty(2, 3, 5, 4, device="meta")
    expected = """
        %constant_pad_nd_default = aten.constant_pad_nd(%x0, [0, 0, 1, 1], -inf)
        %slice_tensor = aten.slice.Tensor(%constant_pad_nd_default, 2, 0, 5, 2)
        %slice_tensor_1 = aten.slice.Tensor(%slice_tensor, 3, 0, 4, 1)
        %slice_tensor_2 = aten.slice.Tensor(%constant_pad_nd_default, 2, 1, 6, 2)
        %slice_tensor_3 = aten.slice.Tensor(%slice_tensor_2, 3, 0, 4, 1)
        %maximum_default = aten.maximum(%slice_tensor_1, %slice_tensor_3)
        return (%maximum_default)"""
    pool = lambda x: F.max_pool2d(x, (2, 1), (2, 1), (1, 0))
    assert after(pool, image, passes=(write_out_pools,)) == lines(expected)
    for kept in (
        lambda x: F.max_pool2d(x, 2, return_indices=True),
        lambda x: F.max_pool2d(x, 5, padding=2),
        lambda x: F.max_pool2d(x, 2, ceil_mode=True),
        lambda x: F.max_pool2d(x[0], 2),
    ):
        assert "max_pool2d" in "".join(after(kept, image, passes=(write_out_pools,)))


@pytest.mark.parametrize("window", [{}, {"stride": 1}, {"padding": 1}, {"dilation": 2}, {"stride": (2, 1)}])
def test_what_max_pools_become(window, meta_as_gpu):
    """Values, with NaN among them, and layouts are eager's."""
    x = torch.randn(2, 3, 9, 8)
    x[0, 0, 4, 4] = torch.nan
    for image in (x, x.contiguous(memory_format=torch.channels_last)):
        graph = record(graph_of(lambda y: F.max_pool2d(y, 3, **window), 1), [to_fake(image.to("meta"))])
        write_out_pools(graph)
        remove_dead(graph)
        assert not any(n.target is torch.ops.aten.max_pool2d_with_indices.default for n in graph.graph.nodes)
        (found,), wanted = interpreter(graph)(image), F.max_pool2d(image, 3, **window)
        torch.testing.assert_close(found, wanted, equal_nan=True, rtol=0, atol=0)
        assert found.stride() == wanted.stride()


def normed(x, weight, bias, w):
    return F.batch_norm(x, torch.zeros(4), torch.ones(4), weight, bias, training=True).relu() @ w


def doubled(x, weight, bias, w):
    return (x @ w * 2).relu() @ w


@pytest.mark.parametrize("fn, looks", [(normed, True), (doubled, False)])
def test_relus_look_at_what_is_read_anyway(fn, looks, monkeypatch):
    give_host(monkeypatch, keeps_operands=True)

    def step(*given):
        given = [t.detach().requires_grad_() for t in given]
        with torch.enable_grad():
            return torch.autograd.grad(fn(*given).square().sum(), given, allow_unused=True)[0]

    given = torch.randn(16, 4), torch.randn(4), torch.randn(4), torch.randn(4, 4)
    aten = functional(step, *given)
    (mask,) = [n for n in aten.graph.nodes if n.target is torch.ops.aten.threshold_backward.default]
    assert (mask.args[1].target is not torch.ops.aten.relu.default) is looks
    torch.testing.assert_close(interpreter(aten)(*given), (step(*given),))

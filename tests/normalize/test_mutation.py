"""In-place operations and writes through views, against eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dovetail.errors import Unsupported
from tests.normalize.harness import check, functional

torch.manual_seed(0)
X = torch.randn(4, 6)
Y = torch.randn(4, 6)
ROW = torch.randn(6)
INDEX = torch.tensor([2, 0, 3])
MASK = X > 0
IMAGE = torch.randn(2, 3, 5, 4)
LAST = IMAGE.to(memory_format=torch.channels_last)




def add_(x, y):
    x.add_(y)
    return x * 2


def mul_row(x):
    x[0].mul_(2)
    return x + 1


def fill_column(x):
    x[:, 1:3].fill_(7)
    return x.sum()


def zero_strided(x):
    x[::2, 1::2].zero_()
    return x.clone()


def through_view(x):
    y = x * 1
    v = y.view(-1)
    v.add_(1)
    return y


def through_chain(x):
    y = x * 1
    y.view(2, 2, 6).permute(2, 0, 1)[1].mul_(3)
    return y, y.t()


def read_view_after_base(x):
    y = x * 1
    v = y[1]
    y.add_(1)
    return v * 2, y


def read_base_after_view_twice(x):
    y = x * 1
    v = y[1]
    w = y[1]
    v.add_(1)
    w.mul_(2)
    return v, w, y


def copy_slice(x, y):
    x[1:3] = y[:2]
    return x


def copy_broadcast(x, row):
    x.copy_(row)
    return x


def copy_converts(x):
    t = torch.zeros(4, 6, dtype=torch.int32)
    t.copy_(x)
    return t


def out_argument(x, y):
    t = torch.empty(4, 6)
    torch.add(x, y, out=t)
    return t


def out_converts(x, y):
    t = torch.empty(4, 6, dtype=torch.float64)
    torch.mul(x, y, out=t)
    return t


def out_is_input(x, y):
    torch.sub(x, y, out=x)
    return y


def out_of_two(x):
    values, indices = torch.empty(4), torch.empty(4, dtype=torch.long)
    torch.max(x, 1, out=(values, indices))
    return values, indices


def index_put(x, index, y):
    x[index] = y[:3]
    return x * 1


def index_add(x, index, y):
    return x.index_add_(0, index, y[:3])


def accumulate(x, index, y):
    x.index_put_((index,), y[:3], accumulate=True)
    return x


def masked_fill(x, mask):
    x[1:].masked_fill_(mask[1:], -1.0)
    return x


def masked_assign(x, mask):
    x[mask] = 0.0
    return x


def scatter(x, index):
    return x.scatter_(0, index.unsqueeze(1), 5.0)


def diagonal(x):
    y = x @ x.t()
    y.diagonal().fill_(0)
    torch.diagonal(y, 1).add_(1)
    return y


def as_strided(x):
    y = x + 0
    y.as_strided((2, 3), (12, 2), 1).zero_()
    return y


def as_strided_of_input(x):
    v = x[1:]
    x.add_(1)
    w = v.as_strided((2, 2), (6, 1), 8)
    w.mul_(10)
    return w * 1, x.as_strided((3,), (1,), 0) + 1


def split(x):
    a, b = x.split(2)
    b.mul_(2)
    c, d, e = x.split([1, 2, 3], dim=1)
    d.add_(a.sum())
    return x + 1, a * 1, c * 1, e


def chunk_unbind(x):
    y = x * 1
    y.chunk(3, dim=-1)[2].neg_()
    y.unbind(0)[-1].zero_()
    return y


def unfold(x):
    y = x * 1
    return y.unfold(1, 2, 2)


def squeeze(x):
    y = x.unsqueeze(1) * 1
    y.squeeze(1).relu_()
    y.unsqueeze(-1).add_(1)
    y.squeeze().mul_(3)
    return y


def transpose(x):
    y = x.t() * 1
    y.add_(1)
    y.t().mul_(2)
    return y, y.contiguous()


def dtype_view(x):
    y = x * 1
    y.view(torch.int32).bitwise_and_(-2)
    return y


def swap(x, y):
    t = x.clone()
    x.copy_(y)
    y.copy_(t)
    return x, y


def swap_halves(x):
    t = x[:2].clone()
    x[:2] = x[2:]
    x[2:] = t
    return x


def augmented(x, y):
    x += y
    x *= 2
    x -= 1
    x /= 3
    return x


def conditional_relu(x):
    return F.relu(x, inplace=True), F.silu(x * 1, inplace=True), F.leaky_relu_(x * 2)


def scalar_fill(x):
    x.fill_(2.5)
    t = torch.empty(3, dtype=torch.int64)
    t.fill_(2.9)
    b = torch.zeros(2, dtype=torch.bool)
    b.fill_(3)
    return x, t, b


def integer_inplace(x):
    t = torch.arange(6)
    t *= 2
    t += x.shape[0]
    t.floor_divide_(3)
    return t, x[:, t.clamp_(0, 5)]


def real_part(x):
    z = torch.complex(x, x)
    torch.view_as_real(z)[..., 0].mul_(2)
    return torch.view_as_real(z)


def views_in_place(x):
    y = x * 1
    z = y[0]
    y.unsqueeze_(0)
    y.transpose_(1, 2)
    z.add_(1)
    y.mul_(2)
    return y, z, y.t_() if y.dim() == 2 else y.squeeze_(0), torch.var_mean(x, 1)[0].unsqueeze_(1)


def view_of_input_in_place(x):
    return x[1].unsqueeze_(0), x.as_strided((2, 2), (6, 1), 1).t_().add_(1)


def foreach(x, y):
    a, b = x * 1, y * 1
    torch._foreach_add_([a, b], 1)
    torch._foreach_mul_([a, x], [b, y])
    return a, b


@pytest.mark.parametrize("fn,args", [
    (add_, (X, Y)), (mul_row, (X,)), (fill_column, (X,)), (zero_strided, (X,)), (through_view, (X,)),
    (through_chain, (X,)), (read_view_after_base, (X,)), (read_base_after_view_twice, (X,)), (copy_slice, (X, Y)),
    (copy_broadcast, (X, ROW)), (copy_converts, (X,)), (out_argument, (X, Y)), (out_converts, (X, Y)),
    (out_is_input, (X, Y)), (out_of_two, (X,)), (index_put, (X, INDEX, Y)), (index_add, (X, INDEX, Y)),
    (accumulate, (X, INDEX, Y)), (masked_fill, (X, MASK)), (scatter, (X, INDEX)), (diagonal, (X,)),
    (as_strided, (X,)), (as_strided_of_input, (X,)), (split, (X,)), (chunk_unbind, (X,)), (unfold, (X,)),
    (squeeze, (X,)), (transpose, (X,)), (dtype_view, (X,)), (swap, (X, Y)), (swap_halves, (X,)), (augmented, (X, Y)),
    (conditional_relu, (X,)), (scalar_fill, (X,)), (integer_inplace, (X,)), (real_part, (X,)), (foreach, (X, Y)),
    (masked_assign, (X, MASK)), (views_in_place, (X,)), (view_of_input_in_place, (X,)),
], ids=lambda v: getattr(v, "__name__", ""))  # fmt: skip
def test_like_eager(fn, args):
    check(fn, *args)


#: Inputs that are no plain contiguous tensors: transposed, with gaps, with an offset, channels_last.
STRIDED = {
    "transposed": torch.randn(6, 4).t(),
    "gaps": torch.randn(4, 12)[:, ::2],
    "offset": torch.randn(9, 6)[3:7],
    "columns": torch.randn(4, 9)[:, 1:7],
}


@pytest.mark.parametrize("layout", STRIDED)
@pytest.mark.parametrize("fn", [
    mul_row, fill_column, zero_strided, through_chain, read_view_after_base, transpose, squeeze, augmented, swap_halves,
    split, as_strided,
], ids=lambda f: f.__name__)  # fmt: skip
def test_input_layouts(fn, layout):
    x = STRIDED[layout]
    check(fn, *((x, Y) if fn is augmented else (x,)))


def test_views_of_a_written_input_keep_its_strides():
    def fn(x):
        x.add_(1)
        return x.permute(1, 0), x[1], x.unsqueeze(0), x.softmax(0)

    for x in (*STRIDED.values(), X):
        check(fn, x)


@pytest.mark.parametrize("image", [IMAGE, LAST, LAST[:, :2], IMAGE.transpose(2, 3)], ids=lambda t: str(t.stride()))
def test_images(image):
    def fn(x):
        x.mul_(2)
        y = x.flatten(2)
        x[:, 0].sub_(1)
        return y, F.relu_(x + 1), x.sum((2, 3))

    check(fn, image, exact=False)


def test_batch_norm_updates_its_statistics():
    def fn(x, mean, var, w, b, count):
        count.add_(1)
        return F.batch_norm(x, mean, var, w, b, training=True, momentum=0.1)

    aten = check(fn, IMAGE, torch.zeros(3), torch.ones(3), torch.rand(3), torch.rand(3), torch.tensor(0), exact=False)
    assert [k for k, _ in aten.mutated] == [1, 2, 5]


def test_instance_norm_updates_its_statistics():
    def fn(x, mean, var):
        return F.instance_norm(x, mean, var, use_input_stats=True)

    check(fn, IMAGE, torch.zeros(3), torch.ones(3), exact=False)


def test_batch_norm_in_eval_writes_nothing():
    aten = check(lambda x, m, v: F.batch_norm(x, m, v), IMAGE, torch.zeros(3), torch.ones(3), exact=False)
    assert aten.mutated == ()


def test_random_numbers_come_in_order():
    def fn(x):
        a = torch.empty(3).uniform_(0, 1)
        F.dropout(x, 0.5)  # unused, but advances the generator
        b = torch.randn(3)
        c = x.clone().normal_()
        d = torch.zeros(3).bernoulli_(0.5)
        return a, b, c, d, torch.rand_like(x), F.dropout(x, 0.3)

    check(fn, X)


def test_reading_writes_nothing():
    aten = functional(lambda x: (x.detach() + 1, x.view(-1) * 2), X)
    assert aten.mutated == ()


@pytest.mark.parametrize("layout", ["gaps", "offset", "columns"])
def test_as_strided_outside_its_tensor(layout):
    with pytest.raises(Unsupported, match="as-strided-outside"):
        functional(view_of_input_in_place, STRIDED[layout])


@pytest.mark.parametrize("fn,code", [
    (lambda x: x.expand(3, 4, 6).add_(1), "write-through-view"),
    (lambda x: torch.add(x, 1, out=torch.empty(2)), "resized-output"),
    (lambda x: x.resize_(2, 2), "metadata-mutation"),
    (lambda x: x.t_(), "metadata-mutation"),
    (lambda x: x.nonzero(), "data-dependent-output"),
    (lambda x: x.sum().item(), "data-dependent-value"),
    (lambda x: torch.equal(x, x), "data-dependent-value"),
    (lambda x: x.unique(), "data-dependent-output"),
    (lambda x: x[x > 0], "data-dependent-output"),
])  # fmt: skip
def test_refusals(fn, code):
    with pytest.raises((Unsupported, RuntimeError)) as caught:
        functional(fn, X)
    if isinstance(caught.value, Unsupported):
        assert caught.value.code == code
    else:
        assert code == "write-through-view"  # eager refuses it too

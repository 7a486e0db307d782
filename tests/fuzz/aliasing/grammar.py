"""Parts of programs. `{a}` and `{b}` are tensors at hand, `{d}` a dimension, `{i}` a position, `{m}` a module."""

from __future__ import annotations

#: At the head of every program.
LIBRARY = '''
import torch
import torch.nn.functional as F


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))
        self.bias = torch.nn.Parameter(torch.randn(4))
        self.norm = torch.nn.BatchNorm1d(4, momentum=0.2)
        self.register_buffer("ema", torch.zeros(4))
        self.register_buffer("cache", torch.zeros(3, 4))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))
        self.register_buffer("row", self.cache[1])


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x * x
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx, gradient):
        x, out = ctx.saved_tensors
        made = gradient.clone()
        made[x < 0] = 0
        return made * x + out * 0.1


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, factor):
        ctx.factor, ctx.needed = factor, ctx.needs_input_grad
        ctx.save_for_backward(x, y)
        return x * y, x.sin()

    @staticmethod
    def backward(ctx, first, second):
        x, y = ctx.saved_tensors
        found = (first * y + second * x.cos()).sum_to_size(x.shape) * ctx.factor
        return found, (first * x).sum_to_size(y.shape) if ctx.needed[1] else None, None


class Viewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


class Dirtied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 5
'''

SHAPES = ("(4,)", "(3, 4)", "(3, 4)", "(3, 4)", "(4, 4)", "(4, 4)", "(2, 3, 4)", "(12,)", "(1, 4)", "(1,)", "()")
DTYPES = ("",) * 8 + (".double()", ".to(torch.int64)")

#: Memory that inputs are views of; the caller keeps it.
BASES = (
    ("torch.randn({shape}){dtype}", 8),
    ("torch.randn({shape}).requires_grad_()", 5),
    ("(torch.randn({shape}).requires_grad_() * 2)", 4),
    ("torch.randn(24)", 2),
    ("torch.randn(6, 8)[1:5, ::2]", 1),
    ("torch.nn.Parameter(torch.randn({shape}))", 1),
    ("torch.randn({shape}, requires_grad=True).sin().t()", 1),
)

#: Inputs made from a base.
INPUTS = (
    ("{a}", 12), ("{a}[0]", 2), ("{a}[1:]", 2), ("{a}.view(-1)", 2), ("{a}.t()", 2), ("{a}[..., ::2]", 1),
    ("{a}.expand(3, *{a}.shape)", 1), ("{a}.unfold(-1, 2, 1)", 1), ("{a}.as_strided((2, 2), (1, 1))", 1),
    ("{a}.as_strided((3, 4), (4, 1), 1)", 1), ("{a}.detach()", 2), ("{a}.data", 1), ("{a}.unsqueeze(0)", 1),
    ("{a}.diagonal()", 1), ("{a}.view({a}.shape)", 1), ("{a}.detach().requires_grad_()", 1),
)  # fmt: skip

VIEWS = (
    "{a}.view(-1)", "{a}.t()", "{a}[0]", "{a}[1:]", "{a}[..., ::2]", "{a}[..., {i}]", "{a}[None]", "{a}[:{i}]",
    "{a}.transpose(0, {d})", "{a}.unsqueeze({d})", "{a}.squeeze()", "{a}.expand(3, *{a}.shape)", "{a}.diagonal()",
    "{a}.permute(*reversed(range({a}.dim())))", "{a}.narrow({d}, 0, 1)", "{a}.chunk(2, {d})[{i}]", "{a}.unbind({d})[0]",
    "{a}.split(2)[0]", "{a}.reshape(-1)", "{a}.reshape(2, -1)", "{a}.flatten()", "{a}.unfold({d}, 2, 1)",
    "{a}.view({a}.shape)", "{a}.as_strided((2, 2), (2, 1))", "{a}.as_strided((2,), (1,), {i})", "{a}.view_as({a})",
    "{a}.expand_as({a})", "{a}.select({d}, {i})", "{a}.movedim(0, -1)", "{a}.T", "{a}.mT", "{a}.swapaxes(0, {d})",
    "{a}.detach()", "{a}.data", "torch.detach({a})", "{a}.contiguous()", "{a}.to({a}.dtype)", "{a}.ravel()",
    "torch.broadcast_tensors({a}, {b})[0]", "{a}.real",
    "{a}.requires_grad_(False)", "torch.atleast_2d({a})", "{a}.unflatten(-1, (2, -1))", "{a}.tensor_split(2, {d})[1]",
    "{a}.float()", "{a}.type_as({b})", "{a}", "{a}.squeeze({d})", "{a}.hsplit(2)[0]",
)  # fmt: skip

COMPUTED = (
    "{a} * 2", "{a} + {b}", "{a} * {b}", "{a} - 1", "{a}.sin()", "{a}.cos()", "{a}.exp().clamp(max=9)",
    "{a}.tanh()", "{a}.sum()",
    "{a}.mean({d})", "{a}.clone()", "{a}.detach().clone()", "torch.cat([{a}, {b}])", "torch.cat([{a}, {a}], {d})",
    "torch.stack([{a}, {b}])", "{a} @ {b}", "F.relu({a})", "torch.where({a} > 0, {a}, {b})", "{a}.sigmoid()",
    "torch.zeros_like({a})", "torch.zeros(3, 4)", "torch.ones(4)", "{a}.new_zeros({a}.shape)",
    "{a}.flip({d})", "{a}.cumsum({d})", "{a}[torch.tensor([0, 0])]", "{a}.index_select({d}, torch.tensor([0]))",
    "{a}.amax({d})", "F.linear({a}, {m}.weight, {m}.bias)", "{m}.norm({a})", "{a} * {m}.bias", "{a}.softmax({d})",
    "{a}.masked_fill({b} > 0, 0.5)", "{a}.double()", "{a}.roll(1, {d})", "{m}.cache[{i}]",
    "{m}.weight.t()", "{m}.cache", "{m}.row", "{m}.weight", "{m}.ema", "{a}.repeat(2, 1)",
    "F.dropout({a}, 0.4)", "torch.rand_like({a})", "F.layer_norm({a}, {a}.shape[-1:])", "{a}.detach() * {b}",
    "torch.addmm({a}, {b}, {m}.weight)", "F.relu({a} * 2, inplace=True)", "{a}.std()", "torch.ones(())",
    "torch.nn.Parameter({a}.detach())", "{a} * torch.nn.Parameter({b}.detach() * 2)",
    "{a} + torch.nn.Parameter({b}.detach(), False)",
    "Squared.apply({a})", "Squared.apply({a} * 2)", "Product.apply({a}, {b}, 2.0)[0]",
    "Product.apply({a}, {b}, 3.0)[1]", "Viewed.apply({a})", "Dirtied.apply({a} + 1)",
)  # fmt: skip

WRITES = (
    "{a}.add_(1)", "{a}.add_({b})", "{a}.mul_({b})", "{a}.mul_(0.5)", "{a}.copy_({b})", "{a}.zero_()",
    "{a}.fill_(0.25)",
    "{a}.masked_fill_({a} > 0, 0.5)", "{a}.index_put_((torch.tensor([0, -1]),), {b})", "{a}[0] = {b}", "{a}[0] = 0.5",
    "{a}[..., 1:] = {b}", "{a}[{a} > 0.5] = 0.5", "{a}[torch.tensor([0])] = {b}", "{a}[1:].add_({b})", "{a} += {b}",
    "{a} *= 0.5", "torch.add({a}, {b}, out={a})", "torch.mul({a}, {a}, out={b})", "torch.sin({a}, out={b})",
    "{a}.t().mul_(0.5)", "{a}.view(-1)[:2].zero_()", "{a}.sub_({b}.sum())", "{a}[..., ::2].mul_(2)", "{a}.neg_()",
    "{a}.tanh_()", "{a}.clamp_(-0.5, 0.5)", "{a}.relu_()", "F.relu({a}, inplace=True)", "{a}.detach().add_(1)",
    "{a}.data.mul_(2)", "{a}.data[0] = 1.5", "{a}.data += {b}", "{a}.diagonal().fill_(0)", "{a}.sigmoid_()",
    "{a}.lerp_({b}, 0.25)",
    "{a}.index_add_(0, torch.tensor([0]), {b}[:1])", "{a}.scatter_({d}, torch.zeros_like({a}, dtype=torch.int64), 1.0)",
    "{a}.index_fill_({d}, torch.tensor([0]), 1.0)", "{a}.unsqueeze(0).copy_({b})", "{a}.addcmul_({b}, {b})",
    "torch._foreach_add_([{a}, {b}], 1)", "{a}.select({d}, 0).copy_({b})", "{a}.copy_({a})", "{a}.set_({b})",
    "{a}.resize_(1)", "{a}.t_()", "{a}.unsqueeze_(0)", "{a}.squeeze_()", "{a}.detach_()", "{a}.requires_grad_()",
    "{a}.transpose_(0, {d})", "{a}.as_strided((2,), (1,)).add_(1)", "{a}.exp_().clamp_(max=9)", "{a}.normal_()",
    "{a}.uniform_(0, 1)", "{a}.bernoulli_(0.5)", "torch.cat([{a}, {a}], out={b})", "{a}.div_({b}.abs() + 1)",
    "{m}.ema.mul_(0.9).add_({a}.detach().mean(0), alpha=0.1)", "{m}.ema.lerp_({a}.mean(0), 0.1)",
    "{m}.cache[{i}] = {a}", "{m}.cache[:, 1:2] = {b}",
    "{m}.cache.index_copy_(0, torch.tensor([1]), {a}.view(-1, 4)[:1])",
    "{m}.cache[1:].copy_({a})", "{m}.cache.narrow(0, {i}, 1).copy_({b})", "{m}.position.add_(1)", "{m}.row.add_({a})",
    "{m}.cache[{m}.position] = {a}", "{m}.ema = {m}.ema * 0.9 + {a}.detach().mean(0)", "{m}.weight.data.mul_(0.9)",
    "{m}.weight.add_(1)", "{m}.bias.copy_({a})", "{m}.cache.copy_({m}.cache.roll(-1, 0))", "{m}.ema.data = {a}",
    "{m}.weight.data = {m}.weight.data * 2", "{m}.weight.data -= {m}.weight.mean() * 0.1",
    "{m}.weight.grad = None", "{m}.norm({a})",
)  # fmt: skip

#: Headers of blocks, and how often.
BLOCKS = (
    ("with torch.no_grad():", 6), ("with torch.enable_grad():", 1), ("for row in {a}.unbind(0):", 2),
    ("if {a}.dim() > 1:", 1), ("with torch.set_grad_enabled(False):", 1), ("for row in {a}:", 1),
)  # fmt: skip

INSIDE_LOOP = ("row.add_(1)", "row.mul_(0.5)", "row.copy_({b})", "row.zero_()")

RETURNS = ("{a}", "{a}.view(-1)", "{a}[0]", "{a}.detach()", "{a}.t()", "{a} * 2", "{a}.clone()", "{a}[..., 1:]",
           "{a}.expand(2, *{a}.shape)", "{a}.unsqueeze(0)", "{a}.view({a}.shape)")  # fmt: skip

SHAPED = (("{},", 10), ("[{}]", 2), ("[({},)]", 1))

#: What the caller does after a call: `{o}` and `{p}` are results, `{a}` and `{b}` inputs or what those are views of.
AFTERWARDS = (
    ("total({o}, {p}).backward()", 10), ("total(*out).backward()", 10), ("total(*out).backward(retain_graph=True)", 3),
    ("torch.autograd.grad(total({o}), wanting([{a}]), allow_unused=True)", 4),
    ("torch.autograd.grad(total(*out), wanting(args), allow_unused=True)", 4),
    ("{a}.add_(1)", 3), ("{a}.detach().mul_(2)", 4), ("{a}.data.add_(1)", 3), ("{o}.mul_(2)", 4), ("{o}.zero_()", 2),
    ("{o}.detach().add_(1)", 5), ("{o}.data.mul_(2)", 3), ("{o}.view(-1)[:1].fill_(3)", 2), ("unrecorded({o})", 5),
    ("unrecorded({a})", 5), ("{o}.requires_grad_()", 2), ("{o}.copy_({p})", 2), ("{o}.t_()", 1), ("{o}.detach_()", 1),
    ("{o}.sum().item()", 1), ("{a}.copy_({o})", 2), ("{o}.add_({a})", 2),
    ("{a}.register_hook(lambda g: g * 3)", 2),
    ("torch.autograd.grad(total({o}), wanting(args), create_graph=True, allow_unused=True)", 1),
    ("{o}.unsqueeze_(0)", 1), ("{o}.numpy(force=True).__imul__(2)", 1), ("{o} * 2", 1),
)  # fmt: skip

#: Used by the lines of AFTERWARDS.
CALLERS = '''

def total(*tensors):
    return sum((t * torch.arange(1, t.numel() + 1, dtype=t.dtype).view(t.shape).cos()).sum() for t in tensors
               if t.requires_grad)


def wanting(values):
    """Leaves: a tensor that the program has given a history is another one to autograd than what was computed from."""
    found = [t for v in values for t in (v.parameters() if isinstance(v, torch.nn.Module) else [v])]
    return [t for t in found if t.is_leaf and t.requires_grad]


def unrecorded(tensor):
    with torch.no_grad():
        return tensor.add_(1)
'''

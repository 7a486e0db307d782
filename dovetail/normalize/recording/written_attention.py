"""Attention that a program has written out, as a call of PyTorch's own, which keeps no scores in memory.

    (q @ k.mT * 0.125).masked_fill(hidden, -inf).softmax(-1) @ v
    ->  scaled_dot_product_attention(q, k, v, ~hidden, scale=0.125)

Scores are then rounded less often. What rows become that see nothing is the program's: NaN, or the mean of all values
where what hides is a number. What was recorded for the steps is taken back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.fx
from torch.nn.functional import scaled_dot_product_attention as attention

from dovetail.ir.devices import traits
from dovetail.ir.nodes import name_of, writes
from dovetail.normalize.passes.random_numbers import draws_few
from dovetail.normalize.recording.attention_chain import Chain, chain_of
from dovetail.normalize.recording.attention_masks import without_known_mask
from dovetail.normalize.recording.attention_times import products_are_faster
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.normalize.recording.templates import wanted
from dovetail.ops.fake.rules.layout import is_one
from dovetail.ops.fake.symbolic.size_questions import same

Env = Mapping[torch.fx.Node, Any]
Tensor = torch.Tensor
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
#: What is below that is a mask's, and what is added to it is lost.
_LOWEST = -1e30
#: On CPUs from so many scores a head on; fewer lie in a cache until they are multiplied.
_MANY = 256 * 256
#: Heads of other widths are for PyTorch's slowest kernel, which is products as the program's are.
_WIDEST, _MULTIPLE = 256, 8
_SETTINGS = ("_set_grad_enabled", "_enter_autocast", "_exit_autocast", "_enter_inference_mode")


def fused(recorder: AtenRecorder, node: torch.fx.Node, env: Env, made: Tensor) -> Tensor | None:
    """What stands in for the product's result `made`; None where it is not such an attention."""
    options = recorder.options
    if not isinstance(made, Tensor) or made.dtype not in _FLOATS:
        return None
    chain = chain_of(node) if wanted(options) and not torch.are_deterministic_algorithms_enabled() else None
    if chain is None or not _undisturbed(chain, node) or _rounds_masks(chain, env):
        return None
    operands = _operands(recorder, chain, env)
    if operands is None or not _fits(chain, env, operands, made) or not _pays(chain, operands):
        return None
    if chain.dropout and (options.fallback_random or draws_few(env[chain.steps[-1]])):  # type: ignore[union-attr]
        return None
    out = _Attention(recorder, chain, env, operands).result()
    if out is None:
        return None
    out = out.reshape(*operands[0].shape[:-1], operands[2].shape[-1])
    if chain.orders[1]:
        out = out.permute(_rows_of(chain.orders[1]))
    if out.dtype is not made.dtype:
        return None
    _forget(recorder, env[chain.steps[-1]])
    return laid_out(out, made)


def _rounds_masks(chain: Chain, env: Env) -> bool:
    """The least number of float16 leaves differences of scores in float32, where kernels add it."""
    return bool(chain.biases) and getattr(env[chain.steps[-1]], "dtype", None) is torch.float16


def _pays(chain: Chain, operands: tuple[Tensor, Tensor, Tensor]) -> bool:
    """On a CPU products are as fast in a backward pass, and in narrow types faster in both (`docs/decisions.md`)."""
    query, key, _ = operands
    sizes, keys, of = query.shape, key.shape[-2], traits(query.device)
    trained = torch.is_grad_enabled() and any(t.requires_grad for t in operands)
    if of.attention:
        known = all(type(n) is int for n in (*sizes, keys))
        return not (trained and known and products_are_faster(sizes, keys, query.dtype, query.device))
    if not of.host or trained or chain.dropout or type(scores := sizes[-2] * keys) is not int:
        return False
    return query.dtype is torch.float32 and scores >= _MANY


def laid_out(out: Tensor, like: Tensor) -> Tensor:
    """The same numbers where the other tensor has them."""
    if all(map(same, out.stride(), like.stride())):
        return out
    return out.new_empty_strided(like.shape, like.stride()).copy_(out)


def _undisturbed(chain: Chain, node: torch.fx.Node) -> bool:
    """Does nothing between the first step and the last write to a tensor, or change how operators work?"""
    between, steps = chain.steps[-1].next, set(chain.steps)
    while between is not node:
        if between not in steps and (writes(between) or name_of(between) in _SETTINGS):
            return False
        between = between.next
    return True


def _operands(recorder: AtenRecorder, chain: Chain, env: Env) -> tuple[Tensor, Tensor, Tensor] | None:
    """Query, key and value, each with rows and widths last."""
    assert chain.query is not None and chain.key is not None and chain.value is not None
    given = [env[n] for n in (chain.query, chain.key, chain.value)]
    if not all(isinstance(t, Tensor) and t.dim() >= 2 for t in given):
        return None
    query, key, value = given if any(chain.orders) else (_given(recorder, t) for t in given)
    first, second = chain.orders
    if first:
        places = _scores_of(first)
        if places is None:
            return None
        query, key = query.permute(places[0]), key.permute(places[1])
    else:
        key = key.transpose(-2, -1)
    if second:
        place = _values_of(second)
        if place is None:
            return None
        value = value.permute(place)
    return query, key, value


def _given(recorder: AtenRecorder, operand: Tensor) -> Tensor:
    """With a gradient that lies as a product's does, where it is the program's result."""
    if not operand.requires_grad or recorder.handle(operand).base.position is None:
        return operand
    alias = operand.view_as(operand)
    alias.register_hook(lambda gradient: gradient.contiguous())
    return alias


def _scores_of(equation: str) -> tuple[list[int], list[int]] | None:
    """How the operands' dimensions lie, for `bihd,bjhd->bhij`: (0, 2, 1, 3) both."""
    operands, _, out = equation.partition("->")
    left, _, right = operands.partition(",")
    if not _letters(left, right, out) or len(out) != len(left) or len(left) != len(right):
        return None
    batch, row, column = out[:-2], out[-2], out[-1]
    width = [letter for letter in left if letter not in out]
    wanted = f"{batch}{row}{''.join(width)}", f"{batch}{column}{''.join(width)}"
    if len(width) != 1 or any(sorted(w) != sorted(given) for w, given in zip(wanted, (left, right), strict=True)):
        return None
    return [left.index(c) for c in wanted[0]], [right.index(c) for c in wanted[1]]


def _values_of(equation: str) -> list[int] | None:
    """How the value's dimensions lie, for `bhij,bjhd->bihd`: (0, 2, 1, 3)."""
    operands, _, out = equation.partition("->")
    left, _, right = operands.partition(",")
    if not _letters(left, right, out) or len(left) != len(right):
        return None
    width = [letter for letter in right if letter not in left]
    wanted = f"{left[:-2]}{left[-1]}{''.join(width)}"
    if len(width) != 1 or sorted(wanted) != sorted(right) or sorted(out) != sorted(left[:-1] + width[0]):
        return None
    return [right.index(letter) for letter in wanted]


def _rows_of(equation: str) -> list[int]:
    """How the result's dimensions lie in those of attention, for `bhij,bjhd->bihd`: (0, 2, 1, 3)."""
    operands, _, out = equation.partition("->")
    left, _, right = operands.partition(",")
    lie = f"{left[:-1]}{''.join(letter for letter in right if letter not in left)}"
    return [lie.index(letter) for letter in out]


def _letters(*parts: str) -> bool:
    return all(part.isalpha() and len(set(part)) == len(part) for part in parts)


def _fits(chain: Chain, env: Env, operands: tuple[Tensor, Tensor, Tensor], made: Tensor) -> bool:
    """Is it attention as PyTorch's function computes it, in numbers that are exact enough?"""
    query, key, value = operands
    steps = [env[step] for step in chain.steps]
    if not all(isinstance(t, Tensor) and t.dtype in _FLOATS and t.device == made.device for t in (*steps, *operands)):
        return False
    if not query.dim() == key.dim() == value.dim() == steps[-1].dim() or query.dim() not in (3, 4):
        return False
    if chain.dimension not in (-1, query.dim() - 1):
        return False
    batch = all(same(a, b) and same(a, c) for a, b, c in zip(*(t.shape[:-2] for t in operands), strict=True))
    widths = [query.shape[-1], key.shape[-1], value.shape[-1]]
    narrow = all(type(n) is int and n == widths[0] and n <= _WIDEST and n % _MULTIPLE == 0 for n in widths)
    scores = steps[-1]
    alike = scores.dtype is made.dtype and query.dtype is key.dtype is value.dtype
    return batch and narrow and alike and _masks_fit(chain, env, scores)


def _masks_fit(chain: Chain, env: Env, scores: Tensor) -> bool:
    biases, masks = [env[b] for b in chain.biases], [env[m] for m, _, _ in chain.hidden]
    if not all(isinstance(t, Tensor) and t.device == scores.device for t in (*biases, *masks)):
        return False
    if any(b.dtype is not scores.dtype for b in biases) or any(m.dtype is not torch.bool for m in masks):
        return False
    if biases and any(number > -math.inf for _, _, number in chain.hidden) or len({n for *_, n in chain.hidden}) > 1:
        return False
    shapes = [tuple(t.shape) for t in (*biases, *masks)]
    return all(
        len(shape) <= scores.dim() and all(is_one(m) or same(m, n) for m, n in zip(shape[::-1], scores.shape[::-1]))
        for shape in shapes
    )


class _Attention:
    """Builds the call, in four dimensions."""

    def __init__(self, recorder: AtenRecorder, chain: Chain, env: Env, operands: tuple[Tensor, Tensor, Tensor]) -> None:
        self.recorder, self.chain = recorder, chain
        self.query, self.key, self.value = map(self.whole, operands)
        shown = [self.whole(env[mask] if not hides else ~env[mask]) for mask, hides, _ in chain.hidden]
        biases = [self.whole(env[bias]) for bias in chain.biases]
        self.shown, self.bias = _joined(shown, torch.logical_and), _joined(biases, torch.add)

    def whole(self, tensor: Tensor) -> Tensor:
        while tensor.dim() < 4:
            tensor = tensor.unsqueeze(0)
        return tensor

    def result(self) -> Tensor | None:
        """None where gradients would differ: of rows that see nothing for two reasons, and of those where numbers hide
        all. Kernels compute a row's weights again from a logarithm, which is lost beside such numbers."""
        if self.shown is not None:
            known = self.known(self.shown)
            if self.bias is None:
                return self.attention(None, known["is_causal"]) if known else self.by_truth(self.shown)
            if known is None:
                return None
            self.bias = torch.where(self.shown, self.bias, -math.inf)
        if self.bias is None:
            return self.attention(None, False)
        known = self.known(self.bias)
        given = self.query, self.key, self.value, self.bias
        if known is None and torch.is_grad_enabled() and any(t.requires_grad for t in given):
            return None
        return self.attention(None, known["is_causal"]) if known else self.by_numbers(self.bias)

    def known(self, mask: Tensor) -> dict[str, Any] | None:
        """What says the same as the mask, which each row then sees something of."""
        _, named = without_known_mask(self.recorder, (self.query, self.key, self.value), {"attn_mask": mask})
        return named if named["attn_mask"] is None else None

    def by_truth(self, mask: Tensor) -> Tensor:
        """Rows that see nothing have scores that are all the same number, without gradients: those of a query of zeros
        that sees everything. Where the number is -inf, they are NaN, and so are gradients of what they would see."""
        rest = ~mask.any(-1, keepdim=True)
        self.query = torch.where(rest, 0.0, self.query)
        out = self.attention(mask | rest, False)
        if self.chain.hidden[0][2] > -math.inf:
            return out
        nothing = torch.where(rest, math.nan, 0.0).to(out.dtype) * self.value.sum(-2, keepdim=True)
        return torch.where(rest, nothing.to(out.dtype), out)

    def by_numbers(self, mask: Tensor) -> Tensor:
        """Scores are lost beside the least of numbers; kernels multiply these, so others take their place that are not
        quite so low. Beside -inf all is NaN."""
        most = mask.amax(-1, keepdim=True)
        low = torch.where(mask == most, _LOWEST, -math.inf).to(mask.dtype)
        out = self.attention(torch.where(most < _LOWEST, low, mask), False)
        return out * torch.where(most == -math.inf, math.nan, 1.0).to(out.dtype)

    def attention(self, mask: Tensor | None, causal: bool) -> Tensor:
        given = self.query, self.key, self.value
        return attention(*given, attn_mask=mask, dropout_p=self.chain.dropout, is_causal=causal, scale=self.chain.scale)


def _joined(tensors: list[Tensor], by: Any) -> Tensor | None:
    found: Tensor | None = None
    for tensor in tensors:
        found = tensor if found is None else by(found, tensor)
    return found


def _forget(recorder: AtenRecorder, scores: Tensor) -> None:
    """Take back what was computed of the scores: random numbers that nobody uses would be drawn."""
    first = recorder.node_of(recorder.handle(scores))
    later, node = {first}, first.next
    while node.op != "root":
        if not later.isdisjoint(node.all_input_nodes):
            later.add(node)
        node = node.next
    for node in reversed(list(recorder.graph.nodes)):
        if node in later and not node.users:
            recorder.graph.erase_node(node)

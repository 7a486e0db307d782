"""Replicas of one model, whose gradients are averaged (`DistributedDataParallel`)."""

from __future__ import annotations

import functools
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import dovetail
from tests.autograd.comparing import nodes_of
from tests.distributed.programs.common import (
    DEVICE,
    Blocks,
    Normalized,
    batches,
    compiles_once,
    ddp,
    one_step,
    same_training,
    train,
)


class Unused(Blocks):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 3)


class Sometimes(Blocks):
    """Which of two layers has a gradient depends on the batch, and the ranks do not agree."""

    def forward(self, x):
        x = self.first(x)
        return self.last(self.blocks[0](x) if x.sum() > 0 else self.blocks[1](x))


def around(wrap):
    return lambda m: dovetail.compile(wrap(m))


def inside(wrap):
    return lambda m: wrap(dovetail.compile(m))


def case_compiled_around_the_wrapper():
    same_training(Blocks, ddp, around(ddp))


def case_compiled_inside_the_wrapper():
    same_training(Blocks, ddp, inside(ddp))


def case_the_step_as_a_function():
    def run(model):
        return train(model, batches(), step)

    step = one_step
    same_training(Blocks, ddp, ddp, run, graphs=0)
    step = dovetail.compile(one_step)
    same_training(Blocks, ddp, ddp, run)


def case_layers_compiled_in_place():
    def wrap(model):
        for block in model.blocks:
            block.forward = dovetail.compile(block.forward)
        return ddp(model)

    same_training(Blocks, ddp, wrap)


def both_ways(model, **settings):
    """Compiled around the wrapper, and inside."""
    wrap = functools.partial(ddp, **settings)
    same_training(model, wrap, around(wrap))
    same_training(model, wrap, inside(wrap))


def case_static_graph():
    both_ways(Blocks, static_graph=True)


def case_an_unused_parameter():
    both_ways(Unused, find_unused_parameters=True)


def case_a_parameter_that_is_sometimes_unused():
    both_ways(Sometimes, find_unused_parameters=True)


def _accumulating(model):
    given = batches(6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for number, batch in enumerate(given):
        losses.append(one_step(model, batch, synchronized=number % 3 == 2))
        if number % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
    return [losses, [p.detach().clone() for p in model.parameters()]]


def case_gradients_are_accumulated_without_synchronizing():
    for wrap in (ddp, functools.partial(ddp, gradient_as_bucket_view=True)):
        same_training(Blocks, wrap, around(wrap), _accumulating)
        same_training(Blocks, wrap, inside(wrap), _accumulating)


def _hooked(hook, state=None):
    def wrap(model):
        wrapped = ddp(model)
        wrapped.register_comm_hook(state, hook)
        return wrapped

    return wrap


def case_communication_hooks():
    def doubled(state, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0] * 2)

    for hook in (default_hooks.fp16_compress_hook, doubled):
        same_training(Blocks, _hooked(hook), around(_hooked(hook)))
        same_training(Blocks, _hooked(hook), inside(_hooked(hook)))


def case_buffers_are_not_broadcast():
    both_ways(Normalized, broadcast_buffers=False)


def case_evaluation_between_steps_with_buffers_that_are_broadcast():
    def run(model):
        found = []
        for batch in batches():
            found.append(train(model, [batch]))
            model.eval()
            with torch.no_grad():
                found.append(model(batch).clone())
            model.train()
        return found

    same_training(Normalized, ddp, around(ddp), run)
    same_training(Normalized, ddp, inside(ddp), run)


def case_batches_of_other_sizes():
    def run(model):
        return train(model, [torch.cat([batch] * n) for n, batch in enumerate(batches(4), 1)])

    same_training(Blocks, ddp, around(ddp), run)
    same_training(Blocks, ddp, inside(ddp), run)


def case_uneven_numbers_of_batches():
    def run(model):
        with model.join():
            return train(model, batches(2 + dist.get_rank()))[1]

    same_training(Blocks, ddp, around(ddp), run)
    same_training(Blocks, ddp, inside(ddp), run)


def case_state_has_the_same_keys():
    model = Blocks().to(DEVICE)
    assert list(ddp(dovetail.compile(model)).state_dict()) == list(ddp(model).state_dict())
    assert list(dovetail.compile(ddp(model)).state_dict()) == list(ddp(model).state_dict())


def case_later_steps_compile_nothing():
    for wrap in (ddp, functools.partial(ddp, gradient_as_bucket_view=True)):
        compiles_once(dovetail.compile(wrap(Blocks().to(DEVICE))))
        compiles_once(wrap(dovetail.compile(Blocks().to(DEVICE))))


def case_the_module_inside_is_one_graph():
    explained = dovetail.explain(ddp(Blocks().to(DEVICE)))(*batches(1))
    assert (explained.graph_count, explained.graph_break_count) == (1, 1), explained


def _events(model, batch):
    """What happens in a backward pass, in order: parts of it that begin, and all-reduces that do."""
    events = []

    def hook(state, bucket):
        events.append("all-reduce")
        return default_hooks.allreduce_hook(None, bucket)

    model.register_comm_hook(None, hook)
    for _ in range(2):  # in the first pass there is one bucket
        events.clear()
        loss = model(batch).square().mean()
        parts = nodes_of(loss)
        for part in parts:
            part.register_prehook(lambda gradients: events.append("part"))
        loss.backward()
    return events, len(parts)


def case_gradients_are_sent_while_others_are_computed():
    for wrap in (around, inside):
        torch.manual_seed(0)
        events, parts = _events(wrap(ddp)(Blocks(4).to(DEVICE)), *batches(1))
        assert events.count("part") == parts > 3, events
        last = len(events) - events[::-1].index("part")
        assert events[:last].count("all-reduce") > 1, events


def case_they_are_those_that_leave_all_at_once():
    def gradients(wrap):
        torch.manual_seed(0)
        model = wrap(ddp)(Blocks(4).to(DEVICE))
        loss = model(*batches(1)).square().mean()
        loss.backward()
        return len(nodes_of(loss)), [p.grad for p in model.parameters()]

    for wrap in (around, inside):
        parts, found = gradients(wrap)
        with mock.patch("dovetail.request.bucket_bytes", lambda *_: None):
            one, expected = gradients(wrap)
        assert parts > 3 and one == 1
        assert all(map(torch.equal, found, expected))

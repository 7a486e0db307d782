"""Modules whose parameters lie in one flat tensor (`FullyShardedDataParallel`), with layers or all of it compiled."""

from __future__ import annotations

import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

import dovetail
from tests.distributed.programs.common import DEVICE, Block, Blocks, batches, compiles_once, one_step, same_training

flat = functools.partial(FullyShardedDataParallel, use_orig_params=True, device_id=DEVICE)
nested = functools.partial(flat, auto_wrap_policy=ModuleWrapPolicy({Block}))


def _losses(model):
    return _trained(model, batches())


def _trained(model, given, step=one_step):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for batch in given:
        losses.append(step(model, batch))
        optimizer.step()
        optimizer.zero_grad()
    with FullyShardedDataParallel.summon_full_params(model):
        parameters = [p.detach().clone() for p in model.parameters()]
    return losses, parameters


def case_the_whole_sharded_and_then_compiled():
    same_training(Blocks, flat, lambda m: dovetail.compile(flat(m)), _losses)


def case_the_whole_compiled_and_then_sharded():
    same_training(Blocks, flat, lambda m: flat(dovetail.compile(m)), _losses)


def case_layers_sharded_and_the_whole_compiled():
    same_training(Blocks, nested, lambda m: dovetail.compile(nested(m)), _losses)


def case_layers_sharded_after_the_whole_was_compiled():
    same_training(Blocks, nested, lambda m: nested(dovetail.compile(m)), _losses)


def _layers_compiled(wrap):
    def wrapped(model):
        for number, block in enumerate(model.blocks):
            model.blocks[number] = dovetail.compile(block)
        return wrap(model)

    return wrapped


def case_layers_compiled_and_then_sharded():
    same_training(Blocks, nested, _layers_compiled(nested), _losses)
    same_training(Blocks, flat, _layers_compiled(flat), _losses)


def case_layers_compiled_inside_what_is_sharded():
    def wrap(model):
        model = nested(model)
        for number, block in enumerate(model.module.blocks):
            model.module.blocks[number] = dovetail.compile(block)
        return model

    same_training(Blocks, nested, wrap, _losses)


def case_layers_compiled_in_place():
    def wrap(model):
        with dovetail.install():
            for block in model.blocks:
                block.compile()
        return nested(model)

    same_training(Blocks, nested, wrap, _losses)


def case_gradients_are_accumulated_without_synchronizing():
    def step(model, batch):
        one_step(model, batch, synchronized=False)
        return one_step(model, batch)

    def run(model):
        return _trained(model, batches(), step)

    same_training(Blocks, nested, lambda m: dovetail.compile(nested(m)), run)
    same_training(Blocks, nested, lambda m: nested(dovetail.compile(m)), run)


def case_later_steps_compile_nothing():
    for wrap in (flat, nested):
        compiles_once(dovetail.compile(wrap(Blocks(5).to(DEVICE))))
        compiles_once(wrap(dovetail.compile(Blocks(5).to(DEVICE))))
        compiles_once(_layers_compiled(wrap)(Blocks(5).to(DEVICE)))

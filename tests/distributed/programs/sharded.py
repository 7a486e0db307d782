"""Modules whose parameters are spread over the ranks (`fully_shard`), with the layers or all of it compiled."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import dovetail
from dovetail.diagnostics.times import RECORDS
from dovetail.errors import GraphBreakError
from dovetail.ir.sharded import gathered
from tests.distributed.programs.common import DEVICE, Block, Blocks, batches, compiles_once, same_training, state, train


def sharded(model: nn.Module, **given) -> nn.Module:
    for block in model.blocks:
        fully_shard(block, **given)
    return fully_shard(model, **given)


def compiled_then_sharded(model: nn.Module, **given) -> nn.Module:
    for number, block in enumerate(model.blocks):
        model.blocks[number] = dovetail.compile(block)
    return sharded(model, **given)


def sharded_then_compiled(model: nn.Module, **given) -> nn.Module:
    model = sharded(model, **given)
    for number, block in enumerate(model.blocks):
        model.blocks[number] = dovetail.compile(block)
    return model


def compiled_in_place_then_sharded(model: nn.Module, **given) -> nn.Module:
    with dovetail.install():
        for block in model.blocks:
            block.compile()
    return sharded(model, **given)


def whole_compiled_then_sharded(model: nn.Module, **given) -> nn.Module:
    return sharded(dovetail.compile(model), **given)


def sharded_then_whole_compiled(model: nn.Module, **given) -> nn.Module:
    return dovetail.compile(sharded(model, **given))


def whole_compiled_in_place(model: nn.Module, **given) -> nn.Module:
    model = sharded(model, **given)
    with dovetail.install():
        model.compile()
    return model


WAYS = (
    compiled_then_sharded, sharded_then_compiled, whole_compiled_then_sharded, sharded_then_whole_compiled,
    compiled_in_place_then_sharded, whole_compiled_in_place,
)  # fmt: skip
#: Layers and the whole, compiled before and after.
TWO = (compiled_then_sharded, sharded_then_whole_compiled)


def in_two_ways(run=None, **given):
    for way in TWO:
        print(way.__name__, flush=True)
        same_training(Blocks, lambda m: sharded(m, **given), lambda m: way(m, **given), run)


def trains_and_compiles_once(way):
    compiles_once(same_training(lambda: Blocks(5), sharded, way))


def case_layers_compiled_and_then_sharded():
    trains_and_compiles_once(compiled_then_sharded)


def case_the_whole_sharded_and_then_compiled():
    trains_and_compiles_once(sharded_then_whole_compiled)


def case_other_orders_and_in_place():
    for way in [way for way in WAYS if way not in TWO]:
        print(way.__name__, flush=True)
        same_training(Blocks, sharded, way)


def case_layers_that_are_one_graph_and_then_sharded():
    """As training loops do for which a graph break would be an error: both hooks are around that graph."""

    def wrap(model):
        for number, block in enumerate(model.blocks):
            model.blocks[number] = dovetail.compile(block, fullgraph=True)
        return sharded(model)

    def in_place(model):
        with dovetail.install():
            for block in model.blocks:
                block.compile(fullgraph=True)
        return sharded(model)

    for way in (wrap, in_place):
        compiles_once(same_training(lambda: Blocks(5), sharded, way))


class Broken(Block):
    def forward(self, x):
        x = super().forward(x)
        dovetail.graph_break()
        return x * 2


def case_what_is_no_one_graph_is_refused_there():
    broken = fully_shard(dovetail.compile(Broken(8).to(DEVICE), fullgraph=True))
    whole = sharded_then_whole_compiled(Blocks().to(DEVICE))
    whole = dovetail.compile(whole, fullgraph=True)
    for model, code in ((broken, "explicit-break"), (whole, "disabled-function")):
        try:
            model(batches(1)[0])
        except GraphBreakError as error:
            assert error.code == code, error
        else:
            raise AssertionError("nothing was raised")


def case_mixed_precision():
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

    def run(model):
        losses, parameters = train(model, batches())
        return [t.float().round(decimals=1) for t in (losses, *parameters.values())]

    in_two_ways(run, mp_policy=policy)


def accumulated_and_evaluated(model):
    """Gradients of two batches in each step, of which the first are not synchronized, and an evaluation after it."""

    def step(model, batch):
        for number, part in enumerate(batch.chunk(2)):
            model.set_requires_gradient_sync(number == 1)
            loss = model(part).square().mean()
            loss.backward()
        return loss.detach()

    found = []
    for batch in batches():
        found.append(train(model, [batch], step))
        with torch.no_grad():
            found.append(model(batch).clone())
    return found


def case_accumulation_and_evaluation():
    same_training(Blocks, sharded, sharded_then_compiled, accumulated_and_evaluated)


def case_parameters_that_stay_gathered_until_the_backward_pass():
    wrap = functools.partial(sharded_then_whole_compiled, reshard_after_forward=False)
    same_training(Blocks, functools.partial(sharded, reshard_after_forward=False), wrap, accumulated_and_evaluated)


def case_gradients_of_a_module_come_together():
    """It takes them when all are there: buckets would be nodes and graphs of their own for nothing."""
    model = compiled_then_sharded(Blocks(1, width=512).to(DEVICE))  # 2 MiB for each of a block's weights
    found = nodes(model(batches(1)[0]).grad_fn)
    assert "CompiledFunctionBackward" in found and "LaterBackward" not in found, found


def case_gathered_parameters_are_known():
    seen = []

    class Looking(Block):
        def forward(self, x):
            made_of = [getattr(p, "_local_tensor", p) for p in self.parameters()]
            seen.append({id(p) in gathered() for p in (*self.parameters(), *made_of)})
            return super().forward(x)

    mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(), 1), mesh_dim_names=("sharded", "spread"))
    for spreads in (False, True):
        model = nn.Sequential(Looking(), Looking()).to(DEVICE)
        for block in model:
            if spreads:
                parallelize_module(block, mesh["spread"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
            fully_shard(block, mesh=mesh["sharded"])
        for batch in batches(2, 4, 16):
            model(batch).sum().backward()
        assert seen == [{True}] * 4 and not {id(p) for p in model.parameters()} & gathered()
        seen.clear()


def nodes(last) -> set[str]:
    """Names of all that is behind a result."""
    found, left = set(), {last}
    while left:
        node = left.pop()
        found.add(node.name())
        left |= {n for n, _ in node.next_functions if n is not None}
    return found


def case_batches_of_other_sizes():
    in_two_ways(lambda model: train(model, [torch.cat([batch] * n) for n, batch in enumerate(batches(4), 1)]))


def case_state_has_the_same_keys():
    for way in WAYS:
        print(way.__name__, flush=True)
        plain, other = sharded(Blocks().to(DEVICE)), way(Blocks().to(DEVICE))
        assert list(other.state_dict()) == list(plain.state_dict())
        assert list(get_model_state_dict(other)) == list(get_model_state_dict(plain))
        set_model_state_dict(other, get_model_state_dict(plain))
        torch.testing.assert_close(state(other), state(plain))
        assert isinstance(other, FSDPModule) and isinstance(other, Blocks)
        other.reshard()


# ---------------------------------------------------------------- layers that are spread over some of the ranks as well

GRIDS = ((dist.get_world_size() // 2, 2), (dist.get_world_size(), 1))


def on_grid(grid: tuple[int, int], model: nn.Module) -> nn.Module:
    mesh = init_device_mesh(DEVICE.type, grid, mesh_dim_names=("sharded", "spread"))
    for block in model.blocks:
        parallelize_module(block, mesh["spread"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return sharded(model, mesh=mesh["sharded"])


def whole_compiled_on_grid(grid: tuple[int, int], model: nn.Module) -> nn.Module:
    return dovetail.compile(on_grid(grid, model))


def layers_compiled_on_grid(grid: tuple[int, int], model: nn.Module) -> nn.Module:
    for number, block in enumerate(model.blocks):
        model.blocks[number] = dovetail.compile(block)
    return on_grid(grid, model)


def alike_in_a_row(grid: tuple[int, int], model: nn.Module) -> list:
    """The ranks that a layer is spread over are given the same batches."""
    generator = torch.Generator().manual_seed(dist.get_rank() // grid[1])
    return train(model, [torch.randn(4, 8, generator=generator).to(DEVICE) for _ in range(3)])


def case_sharded_and_spread():
    for grid, way in zip(GRIDS, (whole_compiled_on_grid, layers_compiled_on_grid), strict=True):
        print(grid, way.__name__, flush=True)
        eager, compiled, run = (functools.partial(each, grid) for each in (on_grid, way, alike_in_a_row))
        compiles_once(same_training(lambda: Blocks(3), eager, compiled, run))


def case_many_layers_that_are_sharded_and_spread():
    """Each has hooks of both, under numbers of its own."""
    grid = GRIDS[1]
    model = whole_compiled_on_grid(grid, Blocks(8).to(DEVICE))
    before = len(RECORDS.all())
    compiles_once(model)
    assert len(RECORDS.all()) - before < 16, [record.function for record in RECORDS.all()[before:]]

"""Modules and tensors that are spread over the ranks, and collectives of the program's own."""

from __future__ import annotations

import re
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed import _functional_collectives as collectives
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import dovetail
from dovetail.diagnostics.logs import LogSink
from tests.distributed.programs.common import DEVICE, Blocks, compiles_once, names_in, one_step, same_training, train

WORLD, RANK = dist.group.WORLD, dist.get_rank()


def mesh():
    return init_device_mesh(DEVICE.type, (dist.get_world_size(),))


# ---------------------------------------------------------------- collectives of the program's own


def same(function, *inputs, **given):
    """Results and gradients are eager's, in one graph."""

    def run(program):
        leaves = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
        result = program(*leaves)
        if result.requires_grad:
            result.square().sum().backward()
        return [result.detach() + 0, [leaf.grad for leaf in leaves]]

    compiled = dovetail.compile(function, **{"fullgraph": True} | given)
    for _ in range(2):
        torch.testing.assert_close(run(compiled), run(function))


def drawn_by(seed, *sizes):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def drawn(*sizes):
    return drawn_by(dist.get_rank(), *sizes)


def case_functional_collectives_are_part_of_a_graph():
    for grad in (False, True):
        x = drawn(4, 4).requires_grad_(grad)
        same(lambda x: collectives.all_reduce(x.sin(), "sum", WORLD).cos(), x)
        same(lambda x: collectives.all_gather_tensor(x.sin(), 0, WORLD).cos(), x)
        same(lambda x: collectives.all_gather_tensor(x.sin(), 1, WORLD).cos(), x)
        same(lambda x: collectives.reduce_scatter_tensor(x.sin(), "sum", 0, WORLD).cos(), x)
        same(lambda x: collectives.reduce_scatter_tensor(x.sin(), "sum", 1, WORLD).cos(), x)
        same(lambda x: collectives.all_gather_tensor_autograd(x.sin(), 0, WORLD).cos(), x)
        same(lambda x: collectives.reduce_scatter_tensor_autograd(x.sin(), "sum", 0, WORLD).cos(), x)
        same(lambda x: collectives.all_to_all_single_autograd(x.sin(), None, None, WORLD).cos(), x)
        same(lambda x: collectives.all_gather_tensor(x.sin(), 0, WORLD.group_name).cos(), x)
        same(lambda x: collectives.all_reduce(x * 2, "sum", list(range(dist.get_world_size()))) * dist.get_rank(), x)


def case_one_result_of_many_collectives():
    def program(x, w):
        for _ in range(3):
            x = collectives.all_gather_tensor(x @ w, 0, WORLD).relu()
            x = collectives.reduce_scatter_tensor(x, "sum", 0, WORLD) + x.mean()
        return x

    weights = drawn(4, 4) / dist.get_world_size()  # sums over more ranks do not grow, nor does their rounding
    same(program, drawn(4, 4).requires_grad_(), weights.requires_grad_())


def case_sizes_that_vary():
    def program(x):
        return collectives.all_gather_tensor(x.sin(), 0, WORLD).sum(0) * x.shape[0]

    compiled = dovetail.compile(program, fullgraph=True)
    for size in (2, 3, 5, 7):
        torch.testing.assert_close(compiled(drawn(size, 3)) + 0, program(drawn(size, 3)) + 0)


def case_collectives_that_write_to_what_they_are_given():
    world = dist.get_world_size()

    def summed(x):
        y = x.sin()
        dist.all_reduce(y)
        z = y.cos()
        dist.all_reduce(z, dist.ReduceOp.MAX, group=WORLD)
        return y * z

    def gathered(x):
        out = x.new_empty(world * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(out, x.sin())
        return out.cos()

    def scattered(x):
        out = x.new_empty(x.shape[0] // world, x.shape[1])
        dist.reduce_scatter_tensor(out, x.sin(), group=WORLD)
        return out.cos()

    def sent(x):
        y, z = x.sin(), x.cos()
        dist.broadcast(y, 0)
        dist.broadcast(z, src=1, group=WORLD)
        return y * z

    def part(x):
        y = x.sin()
        dist.all_reduce(y[1])
        return y.cos()

    def counted(x):
        count = torch.ones((), dtype=torch.int64, device=x.device)
        dist.all_reduce(count)
        return x / count

    for program in (summed, gathered, scattered, sent, part, counted):
        print(program.__name__, flush=True)
        same(program, drawn(4, 4))


def case_collectives_that_are_waited_for_later():
    world = dist.get_world_size()

    def reduced(x):
        y = x.sin()
        work = dist.all_reduce(y, async_op=True)
        z = x.cos()
        assert isinstance(work, dist.Work) and work.wait()
        return y * z + work.result()[0]

    def several(x):
        parts, out = [x.sin(), x.cos()], x.new_empty(world * x.shape[0], x.shape[1])
        works = [dist.all_reduce(part, async_op=True) for part in parts]
        works.append(dist.all_gather_into_tensor(out, x.exp(), async_op=True))
        works.append(dist.broadcast(parts[1], 0, async_op=True) if works[1].wait() else None)
        for work in works:
            work.wait()
        return parts[0] * parts[1] + out.sum(0)

    for program in (reduced, several):
        print(program.__name__, flush=True)
        same(program, drawn(4, 4))


def case_a_collective_that_the_caller_waits_for():
    def begin(x):
        return dist.all_reduce(x, async_op=True)

    compiled = dovetail.compile(begin, fullgraph=True)
    for _ in range(2):
        given, expected = drawn(4), drawn(4)
        assert compiled(given).wait() and begin(expected).wait()
        torch.testing.assert_close(given, expected)


def written(compiled, *given):
    """The host program of what is compiled for these."""
    texts = []
    with mock.patch.object(LogSink, "wants", lambda sink, kind: kind == "output_code"):
        with mock.patch.object(LogSink, "write", lambda sink, record, kind, text: texts.append(text)):
            compiled(*[t.clone() for t in given])
    return texts[0][texts[0].index("def run(") :]


def case_collectives_run_beside_what_does_not_read_them():
    def program(x, w):
        total = collectives.all_reduce(x.sin(), "sum", WORLD)
        whole = collectives.all_gather_tensor(x.cos(), 0, WORLD)
        y = (x @ w).relu() @ w
        dist.all_reduce(y)
        z = (w @ w).sum(0)
        return total * 2, whole + z, y + z

    given = [drawn(4, 4), drawn_by(7, 4, 4)]
    compiled = dovetail.compile(program, fullgraph=True)
    run = written(compiled, *given)
    begun = [run.index(f"dovetail_begin_{name}(") for name in ("all_reduce", "all_gather_into_tensor")]
    assert max(begun) < run.index("aten_mm(") < run.index("dovetail_wait("), run
    for _ in range(3):
        torch.testing.assert_close(compiled(*given), program(*[t.clone() for t in given]))


def gathered_in_parts(x, w):
    """The rows of all ranks times `w`: the second half of the columns is gathered while the first is multiplied."""
    parts = [collectives.all_gather_tensor_autograd(part.contiguous(), 0, WORLD) for part in x.chunk(2, 1)]
    return parts[0] @ w.chunk(2)[0] + parts[1] @ w.chunk(2)[1]


def scattered_in_parts(x, w):
    """Sums of all ranks' products, of which each keeps its rows: one half of the columns below the other."""
    halves = [collectives.reduce_scatter_tensor_autograd(x @ part, "sum", 0, WORLD) for part in w.chunk(2, 1)]
    return torch.cat(halves)


def passed_around(x, w):
    """The rows of all ranks times `w`: while some are multiplied, those of the next rank come."""
    size, found = dist.get_world_size(), []
    sent, taken = ([x.numel() * (k == other % size) for k in range(size)] for other in (RANK + 1, RANK - 1))
    for _ in range(size):
        coming = collectives.all_to_all_single_autograd(x.flatten(), taken, sent, WORLD)
        found.append(x @ w)
        x = coming.view_as(x)
    return torch.cat(found)


def case_products_run_beside_their_collectives():
    for program in (gathered_in_parts, scattered_in_parts, passed_around):
        x, w = drawn(4, 6), drawn_by(7, 6, 8)
        same(program, x.requires_grad_(), w.requires_grad_())
        run = written(dovetail.compile(program, fullgraph=True), x.detach(), w.detach())
        before = [run[: found.start()] for found in re.finditer(r"mm\(", run)]
        assert any(text.count("dovetail_begin_") > text.count("dovetail_wait(") for text in before), run


def case_collectives_that_write_to_inputs():
    def program(x, y):
        dist.all_reduce(x)
        y.mul_(2)
        dist.broadcast(y, 1)
        return x + y

    compiled = dovetail.compile(program, fullgraph=True)
    for _ in range(2):
        given, expected = ([drawn(3, 4), drawn(3, 4).sin()] for _ in range(2))
        torch.testing.assert_close(compiled(*given), program(*expected))
        torch.testing.assert_close(given, expected)


def case_gradients_that_are_averaged_by_hand():
    """As programs do without a wrapper, in one graph with the step of the optimizer."""

    def step(model, optimizer):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()

    def run(step):
        torch.manual_seed(0)
        model = nn.Linear(4, 4).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for k in range(3):
            model(drawn_by(dist.get_rank() + k, 2, 4)).square().sum().backward()
            step(model, optimizer)
            optimizer.zero_grad()
        with torch.no_grad():
            return [p.clone() for p in model.parameters()]

    torch.testing.assert_close(run(dovetail.compile(step, fullgraph=True)), run(step))


def case_parameters_that_are_sent():
    def send(model):
        with torch.no_grad():
            for parameter in model.parameters():
                dist.broadcast(parameter, 0)

    torch.manual_seed(dist.get_rank())
    model = nn.Linear(4, 4).to(DEVICE)
    dovetail.compile(send, fullgraph=True)(model)
    torch.manual_seed(0)
    torch.testing.assert_close(model.state_dict(), nn.Linear(4, 4).to(DEVICE).state_dict())


def case_collectives_that_end_a_graph():
    def listed(x):
        out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x.sin())
        return out[0] + out[1].cos()

    def asked(x):
        y = x.sin()
        future = dist.all_reduce(y, async_op=True).get_future()
        return future.then(lambda done: done.value()[0] * 2).wait() + x

    def synchronized(x):
        dist.barrier()
        return x.sin()

    for program in (listed, asked, synchronized):
        print(program.__name__, flush=True)
        same(program, drawn(4, 4), fullgraph=False)


# ---------------------------------------------------------------- tensor parallel


PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


def spread(model):
    for block in model.blocks:
        parallelize_module(block, mesh(), PLAN)
    return model


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Sequence()

    def forward(self, x):
        return self.block(x)


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(F.gelu(self.up(self.norm(x))))


def _alike(model):
    """The same batches on each rank."""
    return train(model, [drawn_by(n, 4, 8) for n in range(3)])


def case_layers_spread_over_ranks():
    same_training(Blocks, spread, lambda m: dovetail.compile(spread(m)), _alike)
    same_training(Blocks, spread, lambda m: dovetail.compile(spread(m), fullgraph=True), _alike)
    same_training(Blocks, spread, lambda m: spread(dovetail.compile(m)), _alike)


def case_spread_layers_are_compiled_with_their_tensors_taken_apart():
    found = dovetail.compile(spread(Blocks().to(DEVICE)), fullgraph=True)(drawn_by(1, 4, 8))
    assert found.grad_fn.name() == "CompiledFunctionBackward", found.grad_fn


def case_spread_parameters_that_change():
    """After so many calls that all of them are compared as words."""
    model, given = spread(Blocks().to(DEVICE)), drawn_by(1, 4, 8)
    compiled, weight = dovetail.compile(model, fullgraph=True), model.blocks[0].up.weight
    for _ in range(40):
        torch.testing.assert_close(compiled(given), model(given))
        with torch.no_grad():
            weight.add_(0.01)
    with dovetail.set_stance("fail_on_recompile"):
        weight._local_tensor = weight._local_tensor * 2
        torch.testing.assert_close(compiled(given), model(given))
    for asked in (False, True):
        weight.requires_grad_(asked)
        weight.grad = None
        compiled(given).sum().backward()
        assert (weight.grad is not None) is asked
    model.blocks[0].up.weight = nn.Parameter(distribute_tensor(drawn_by(2, 32, 16), mesh(), [Shard(0)]))
    torch.testing.assert_close(compiled(given), model(given))
    model.double()
    torch.testing.assert_close(compiled(given.double()), model(given.double()))


def case_sequences_spread_over_ranks():
    def wrap(model):
        parallelize_module(model.block, mesh(), {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        })  # fmt: skip
        return parallelize_module(
            model, mesh(),
            {"block": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Shard(1),))},
        )  # fmt: skip

    def run(model):
        given = distribute_tensor(drawn_by(1, 2, 4, 8), mesh(), [Shard(1)])
        found = model(given.to_local())
        found.to_local().square().sum().backward()
        return [found.full_tensor().detach() + 0, [p.grad.full_tensor() + 0 for p in model.parameters()]]

    same_training(Sequences, wrap, lambda m: dovetail.compile(wrap(m)), run)


class Rotated(nn.Module):
    """Three layers that read one input, as an attention's do, and one of their products."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        return x + self.out(self.query(x).sin() * self.key(x).cos() + self.value(x))


def case_sums_of_partial_results_are_reduced_once():
    columns = dict.fromkeys(("query", "key", "value"), ColwiseParallel())

    def wrap(model):
        parallelize_module(model[1], mesh(), {**columns, "out": RowwiseParallel()})
        return model

    def run(model):
        return train(model, [drawn_by(n, 4, 8) for n in range(3)])

    def make():
        return nn.Sequential(nn.Linear(8, 8), Rotated())

    with dovetail.config.patch(fewer_collectives=True):
        model = same_training(make, wrap, lambda m: dovetail.compile(wrap(m), fullgraph=True), run)
        with torch.profiler.profile() as profile:
            one_step(model, drawn_by(1, 4, 8))
    made = [name for name in names_in(profile) if name.startswith("_c10d_functional::all_reduce")]
    assert len(made) == 2, made  # one forward, one backward: eager mode has three there


def case_spread_layers_compile_once():
    compiles_once(dovetail.compile(spread(Blocks(3).to(DEVICE))))


# ---------------------------------------------------------------- tensors that are spread over the ranks


def own_part(tensor):
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return None if local is None else local.detach() + 0  # which waits for what is on its way


def outcome(function, inputs):
    inputs = [t.detach().requires_grad_(t.requires_grad) for t in inputs]
    result = function(*inputs)
    if result.requires_grad:
        local = result.to_local() if isinstance(result, DTensor) else result
        local.sum().backward()
    gradients = [t.grad for t in inputs]
    if isinstance(function, nn.Module):
        gradients += [p.grad for p in function.parameters()]
        function.zero_grad()
    spread = [(t.placements, t.shape) for t in (result, *gradients) if isinstance(t, DTensor)]
    return [own_part(t) for t in (result, *gradients)], spread, result.requires_grad


def kernels_of(function, *inputs, most):
    """Names of all that runs: at most so many kernels, and what eager mode computes."""
    compiled = dovetail.compile(function, fullgraph=True)
    found = [outcome(compiled, inputs) for _ in range(2)]  # before eager has asked how anything is laid out
    expected = outcome(function, inputs)
    for each in found:
        torch.testing.assert_close(each[0], expected[0])
        assert each[1:] == expected[1:]
    with torch.profiler.profile() as profile:
        outcome(compiled, inputs)
    names = names_in(profile)
    assert any(name.startswith("dovetail graph") for name in names), names
    ran = [name for name in names if name.startswith("k") and name[1].isdigit()]
    assert len(ran) <= most, ran
    return names


def placed(*sizes, where, grad=False):
    return distribute_tensor(drawn_by(1, *sizes), mesh(), [where]).requires_grad_(grad)


def case_what_is_computed_of_parts_is_kernels():
    ranks = mesh()

    def made(x):
        return DTensor.from_local(x * 2, ranks, [Shard(0)], run_check=False).cos().to_local()

    given = placed(4, 8, where=Shard(0)), placed(4, 8, where=Replicate())
    kernels_of(lambda t, u: ((t * u).sin() + 1).relu(), *given, most=1)
    kernels_of(lambda t: (t.sin() * 2 + t).exp(), placed(4, 8, where=Shard(1), grad=True), most=2)
    kernels_of(made, drawn_by(1, 4, 4).requires_grad_(), most=3)


def case_other_placements_are_collectives():
    def gathered(t):
        return (t * 2).redistribute(placements=[Replicate()]).to_local().sin()

    names = kernels_of(gathered, placed(4, 8, where=Shard(0), grad=True), most=4)
    assert names.count("_c10d_functional::all_gather_into_tensor") == 1
    split = placed(4, 8, where=Shard(1)), placed(8, 4, where=Shard(0))
    names = kernels_of(lambda t, u: (t @ u).full_tensor() * 2, *split, most=1)
    assert names.count("_c10d_functional::all_reduce") == 1
    assert not any("wrap_tensor" in name for name in names)


def case_a_layer_split_by_columns_and_one_by_rows_take_one_collective():
    model = parallelize_module(Sequence().to(DEVICE), mesh(), PLAN)
    names = kernels_of(model, drawn_by(1, 4, 8), most=9)
    assert names.count("_c10d_functional::all_reduce") == 2 and not any("Redistribute" in name for name in names)

"""What is alive at once in a scheduled program: not more than in eager, whatever is fused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dovetail.autograd import partition
from dovetail.ir.aten import AtenGraph
from dovetail.ir.liveness import output_buffers, view_roots
from dovetail.ir.loops import Program
from dovetail.lower import lower
from dovetail.normalize import normalize_joint
from dovetail.ops.fake import FakeTensor, to_fake
from dovetail.options import Options
from dovetail.schedule import reuse, schedule
from dovetail.schedule.fusion.align import Names
from dovetail.schedule.fusion.fuse import _Fuser
from dovetail.schedule.memory.lifetimes import Lifetimes, SlotLifetimes, allocated
from tests.normalize.harness import graph_of
from tests.schedule.test_meaning import CASES, lowered


def most(program: Program) -> int:
    """Bytes alive at once."""
    return int(Lifetimes(program).live.max())


def halves(fn, *args, device: str = "cpu") -> list[Program]:
    """The scheduled programs of the forward and the backward pass."""
    fakes = [to_fake(a, leaf=True) for a in args]
    pair = partition(normalize_joint(graph_of(fn, len(args)), fakes, Options()))
    return [reuse(schedule(lower(on(device, half), Options()), Options())) for half in (pair.forward, pair.backward)]


def on(device: str, graph: AtenGraph) -> AtenGraph:
    """The graph as if recorded there: PyTorch's engine differentiates nothing on devices that are not."""
    def moved(value):
        if isinstance(value, torch.Tensor):
            return FakeTensor(value.shape, value.stride(), value.dtype, torch.device(device), value.storage_offset())
        return type(value)(map(moved, value)) if isinstance(value, (tuple, list)) else value

    for node in graph.graph.nodes:
        node.kwargs = {k: torch.device(device) if k == "device" else v for k, v in node.kwargs.items()}
        if "val" in node.meta:
            node.meta["val"] = moved(node.meta["val"])
    return graph


LENGTH = 32


def scan(a, b, c):
    """A state space model's loop over positions, as it is written in Python."""
    a, b = torch.exp(a), b * 2
    state, found = torch.zeros(a.shape[0], a.shape[2]), []
    for k in range(LENGTH):
        state = a[:, k] * state + b[:, k]
        found.append((state @ c[k]).tanh())
    return torch.stack(found, 1)


def stores(a, b, c):
    state, found = torch.zeros(a.shape[0], a.shape[2]), torch.empty(a.shape)
    for k in range(LENGTH):
        state = torch.tanh(a[:, k] * state + b[:, k])
        found[:, k] = state
    return found


def windows(a, b, c):
    return torch.stack([(a[:, k : k + 8] * b[:, :8]).sum(1) for k in range(LENGTH - 8)], 1)


def grows(a, b, c):
    found = a[:, :1]
    for k in range(1, LENGTH):
        found = torch.cat([found, a[:, k : k + 1] * found[:, -1:]], 1)
    return found


def adds_parts(a, b, c):
    found = torch.zeros(a.shape[0], LENGTH + 8, a.shape[2])
    for k in range(LENGTH):
        found[:, k : k + 8] += a[:, k : k + 1] * b[:, :8]
    return found


def products(a, b, c):
    total = 0
    for k in range(LENGTH):
        total = total + (a[:, k] * b[:, k]).tanh() @ c[k]
    return total


def lookups(a, b, c):
    table, total = a.flatten(0, 1), 0
    for k in range(LENGTH):
        total = total + F.embedding(torch.arange(k, k + 8), table).tanh()
    return total


LOOPS = {f.__name__: f for f in (scan, stores, windows, grows, adds_parts, products, lookups)}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_need_memory_in_proportion_to_their_inputs(name, device):
    """Each position's result, or gradient, is as large as an input at most a few times, not once a position."""
    a, b = (torch.rand(300, LENGTH, 256, requires_grad=True) for _ in range(2))
    c = torch.rand(LENGTH, 256, 256, requires_grad=True)
    size = (a.numel() + b.numel() + c.numel()) * a.element_size()
    forward, backward = halves(LOOPS[name], a, b, c, device=device)
    assert most(forward) <= 2.5 * size and most(backward) <= 4 * size


def test_sums_of_what_libraries_compute_are_made_as_it_comes():
    """Each product is added up before the next is there; in one kernel they would all be alive at once."""

    def fn(a, b):
        total = a
        for k in range(12):
            total = total + a @ b[k]
        return total

    a, b = torch.rand(1024, 1024), torch.rand(12, 1024, 1024)
    program = lowered(fn, a, b)
    assert most(schedule(program, Options())) == most(program) == 3 * a.nbytes


def test_sums_of_what_is_there_are_one_kernel():
    rows = [torch.rand(64, 64) for _ in range(12)]
    program = schedule(lowered(lambda *rows: sum(rows), *rows), Options())
    assert len(program.items) == 1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bound", [0, 1 << 40], ids=["nothing more", "anything"])
def test_slots(name, bound):
    """What is said to be alive while items change places is what is alive once they have."""
    fn, args, _ = CASES[name]
    program = lowered(fn, *args)
    fuser = _Fuser(Names(), SlotLifetimes(program, bound or most(program)))
    for item in program.items:
        fuser.add(item)
    lives = fuser.lives
    for slot, live in zip(fuser.slots, recounted(program, fuser.slots), strict=True):
        position = fuser.slots.index(slot)
        assert slot is None or lives.live[position] == live
        assert slot is None or bound or live <= lives.most


def recounted(program, slots):
    roots, sizes = view_roots(program), allocated(program)
    first, last = {}, {}
    for position, slot in enumerate(slots):
        for name in (slot.reads | slot.writes) if slot else ():
            name = roots.get(name, name)
            first.setdefault(name, position)
            last[name] = position
    last |= {roots.get(n, n): len(slots) for n in output_buffers(program)}
    alive = [{n for n in first if n in sizes and first[n] <= k <= last[n]} for k in range(len(slots))]
    return [sum(map(sizes.__getitem__, names)) for names in alive]

"""What the CPU computes for a GPU is a part of its own. The meta device stands for the GPU."""

from __future__ import annotations

import pytest
import torch

from dovetail.codegen.host import staged
from dovetail.ir.staged import Part, StagedCall
from dovetail.lower import in_turns
from dovetail.normalize.interpret import interpreter
from dovetail.normalize.normalize import record
from dovetail.normalize.passes.uploads import upload_together
from dovetail.ops.fake import to_fake
from dovetail.runtime.call.program import load_stages, undone
from tests.normalize.harness import graph_of

W = torch.linspace(-1, 1, 12).view(3, 4)
STEP = torch.tensor(3.0)


def adam(w, m, step, grad):
    """Writes to what lies on either device."""
    step += 1
    m.lerp_(grad, 0.1)
    w.addcdiv_(m, m * m + 1, value=-0.1)
    w.mul_(1 - 0.9**step)


def returned(w, m, step, grad):
    half = step * 0.5
    return w * half, half, m


def swapped(w, m, step, grad):
    """The GPU's part reads what it will be given back."""
    w.copy_(grad * (step + 1))
    return w, grad.t(), step


def late(w, m, step, grad):
    """An index may be refused: nothing is written before."""
    step += 1
    w.add_(grad[torch.zeros(3, dtype=torch.int64, device=w.device)] * (step * 2))


PROGRAMS = {
    "adam": adam, "returned": returned, "swapped": swapped, "late": late,
    "a number as it is": lambda w, m, step, grad: (w * step,),
}  # fmt: skip


def aten_of(fn):
    given = [W.to("meta"), W.to("meta"), STEP, W.to("meta")]
    with torch.no_grad():
        graph = record(graph_of(fn, 4), [to_fake(g) for g in given])
    upload_together(graph)
    return graph


def parts_of(stages):
    return [step for step in stages.steps if isinstance(step, Part)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_parts(name):
    stages = in_turns(aten_of(PROGRAMS[name]))
    first, rest = parts_of(stages)
    calls = [step.operator for step in stages.steps if isinstance(step, StagedCall)]
    assert torch.ops.aten._to_copy.default in calls
    for part, device in ((first, "cpu"), (rest, "meta")):
        values = [n.meta["val"] for n in part.graph.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)]
        assert {v.device.type for v in values} == {device}


@pytest.mark.parametrize("name", PROGRAMS)
def test_meaning(name):
    """With everything on the CPU."""
    graph = aten_of(PROGRAMS[name])
    stages = in_turns(graph)
    for step in stages.steps:
        if isinstance(step, StagedCall) and "device" in step.kwargs:
            step.kwargs["device"] = torch.device("cpu")
        for node in step.graph.graph.nodes if isinstance(step, Part) else ():
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device("cpu")}
    call = load_stages(staged.generate(stages), [interpreter(p.graph) for p in parts_of(stages)])
    ours, eager = ([W.clone(), W * 2, STEP.clone(), W + 1] for _ in range(2))
    results, expected = call(*ours), PROGRAMS[name](*eager)
    torch.testing.assert_close(ours, eager)
    for result, wanted in zip(results, expected or (), strict=False):
        torch.testing.assert_close(result, wanted)


def test_who_writes():
    """The parts themselves, unless an index could be refused after the CPU's turn."""
    assert not in_turns(aten_of(adam)).written
    assert [len(p.graph.mutated) for p in parts_of(in_turns(aten_of(adam)))] == [1, 2]
    stages = in_turns(aten_of(late))
    assert len(stages.written) == 1 and [len(p.graph.mutated) for p in parts_of(stages)] == [0, 1]


@pytest.mark.parametrize("fn, written", [(adam, True), (late, False)])
def test_what_an_error_of_the_gpu_leaves_behind(fn, written):
    stages = in_turns(aten_of(fn))
    first, _ = parts_of(stages)

    def fails(*inputs):
        raise RuntimeError("out of memory")

    call = load_stages(staged.generate(stages), [interpreter(first.graph), fails])
    step = STEP.clone()
    with pytest.raises(RuntimeError) as caught:
        call(W, W, step, W)
    assert undone(caught.value) is not written and torch.equal(step, STEP + written)


WHOLE = {
    "nothing on the CPU": lambda w, m, step, grad: w + m,
    "nothing on the GPU": lambda w, m, step, grad: step + 1,
    "from the GPU": lambda w, m, step, grad: w * (step + 1) + (w.sum().cpu() + step).to("meta"),
    "random": lambda w, m, step, grad: w * torch.rand(()),
}


@pytest.mark.parametrize("name", WHOLE)
def test_one_part(name):
    assert in_turns(aten_of(WHOLE[name])) is None

"""Every configuration of PyTorch's optimizer database: compiled steps beside eager's.

    python -m tests.optim.database [-k NAME]      all of it; the exit status says whether all agree
"""

from __future__ import annotations

import argparse
import copy
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

import dovetail
from tests.databases import load

STEPS = 5
IMPLEMENTATIONS = ("forloop", "foreach", "fused")
#: Results that are as near to the exact ones as eager's are.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


@dataclass(frozen=True)
class Case:
    info: Any
    given: Any  # an OptimizerInput
    settings: dict[str, Any]
    name: str


def cases() -> Iterator[Case]:
    """Each input of each optimizer with each way to compute it that the optimizer has on a CPU."""
    for info in load("common_optimizers").optim_db:
        for number, given in enumerate(info.optim_inputs_func(device="cpu")):
            for way in ways(info):
                settings = {k: v for k, v in given.kwargs.items() if k not in IMPLEMENTATIONS} | way
                if settings.get("fused") and settings.get("differentiable"):
                    continue
                label = ",".join(f"{k}={v}" for k, v in way.items())
                yield Case(info, given, settings, f"{info.optim_cls.__name__}-{number}-{given.desc}-{label}")


def ways(info: Any) -> list[dict[str, Any]]:
    """`capturable` is for accelerators only: eager refuses it on a CPU."""
    found: list[dict[str, Any]] = [{"foreach": False}] if "foreach" in info.supported_impls else [{}]
    found += [{"foreach": True}] if "foreach" in info.supported_impls else []
    fused = "fused" in info.supported_impls and "cpu" in info.supports_fused_on
    return found + ([{"fused": True}] if fused else [])


def trainable(case: Case) -> tuple[list[torch.nn.Parameter], Any]:
    """Parameters of several sizes; vectors are left out where an optimizer takes matrices only."""
    torch.manual_seed(0)
    cls, settings = case.info.optim_cls, copy.deepcopy(case.settings)
    sizes = ((4, 3), (3, 4), (2, 2), (8, 8)) if cls.__name__ == "Muon" else ((4, 3), (7,), (2, 2, 2), ())
    # What LBFGS keeps are differences of nearly equal numbers.
    dtype = torch.float64 if cls is torch.optim.LBFGS else torch.float32
    parameters = [torch.nn.Parameter(torch.rand(n, dtype=dtype)) for n in sizes]
    if cls in (torch.optim.SparseAdam, torch.optim.LBFGS):
        return parameters, cls(parameters, **settings)
    return parameters, cls([{"params": parameters[:2]}, {"params": parameters[2:]}], **settings)


def run(case: Case, compiled: bool, steps: int = STEPS) -> dict[str, Any]:
    """What some steps leave; the learning rate changes after each."""
    parameters, optimizer = trainable(case)
    step = dovetail.compile(optimizer.step) if compiled else optimizer.step
    losses = []
    for number in range(steps):
        def closure(number: int = number) -> torch.Tensor:
            optimizer.zero_grad()
            torch.manual_seed(number)
            loss = sum(((p - torch.rand_like(p)) ** 2).sum() for p in parameters)
            loss.backward()
            return loss

        closure()
        if case.info.optim_cls.__name__ == "SparseAdam":
            for p in parameters:
                p.grad = p.grad.to_sparse()
        losses.append(step(closure) if needs_closure(case) else step())
        for group in optimizer.param_groups:
            if isinstance(group["lr"], float):
                group["lr"] *= 0.9
    return {
        "parameters": [p.detach() for p in parameters],
        "state": tree_map(lambda v: hash(v) if isinstance(v, str) else v, optimizer.state_dict()),
        "losses": [None if loss is None else torch.as_tensor(loss).detach() for loss in losses],
    }


def needs_closure(case: Case) -> bool:
    return case.info.step_requires_closure


def difference(case: Case) -> str:
    """Why the two differ; nothing if they do not."""
    dovetail.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = run(case, compiled=False)
        except Exception as error:
            return f"eager refuses this configuration: {error}"
        try:
            torch.testing.assert_close(run(case, compiled=True), want, **TOLERANCE)
        except Exception as error:
            return "".join(traceback.format_exception_only(error)).strip()
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", help="only names that contain this")
    wanted = parser.parse_args().k
    found: Counter[str] = Counter()
    for case in cases():
        if wanted in case.name:
            why = difference(case)
            found["differ" if why else "agree"] += 1
            if why:
                print(f"{case.name}: {why[:400]}", flush=True)
    print(f"{found['agree']} configurations agree with eager, {found['differ']} do not")
    return bool(found["differ"])


if __name__ == "__main__":
    sys.exit(main())

"""Runs programs in forks of a process that has imported everything and compiled nothing: each is like a process of its
own, but begins in milliseconds.

Lines of JSON come in, `{"programs": [text, ...], "environment": {...}}`; a line with the outcomes goes out for each.
Each of several programs is a module of its own; one that is alone is the main module.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import types

import torch

import dovetail
from dovetail.diagnostics.times import RECORDS


def run(programs: list[str], environment: dict[str, str]) -> list[dict[str, object]]:
    os.environ.update(environment)
    dovetail.config.warm_start = environment["WARM"] == "1"
    names = [f"program{k}" for k in range(len(programs))] if len(programs) > 1 else ["__main__"]
    return list(map(outcome, programs, names))


def outcome(program: str, name: str) -> dict[str, object]:
    before = len(RECORDS.all())
    shown: list[object] = []

    def show(*results: object) -> None:
        for leaf in torch.utils._pytree.tree_leaves(results):
            shown.append(leaf.detach().tolist() if isinstance(leaf, torch.Tensor) else repr(leaf))

    torch.manual_seed(0)
    main = types.ModuleType(name)
    main.__dict__.update(torch=torch, dovetail=dovetail, show=show)
    sys.modules[name] = main
    try:
        exec(compile(program, f"/programs/{name}.py", "exec"), main.__dict__)
    except Exception:
        return {"error": traceback.format_exc()}
    return {"shown": shown, "stages": [[stage.name for stage in r.stages] for r in RECORDS.all()[before:]]}


def serve() -> None:
    for line in sys.stdin:
        given = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.dup2(2, 1)  # what programs print is no answer
            found = run(given["programs"], given["environment"])
            os.write(writing, json.dumps(found).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as found_there:
            text = found_there.read()
        os.waitpid(child, 0)
        print(text or json.dumps([{"error": "the process ended early"}]), flush=True)


if __name__ == "__main__":
    serve()

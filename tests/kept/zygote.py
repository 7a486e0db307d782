"""Runs programs in forks of a process that has imported everything and compiled nothing: each is like a process of its
own, but begins in milliseconds.

Lines of JSON come in, `{"program": text, "environment": {...}}`; a line with the outcome goes out for each.
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


def run(program: str, environment: dict[str, str]) -> dict[str, object]:
    os.environ.update(environment)
    shown: list[object] = []

    def show(*results: object) -> None:
        for leaf in torch.utils._pytree.tree_leaves(results):
            shown.append(leaf.detach().tolist() if isinstance(leaf, torch.Tensor) else repr(leaf))

    torch.manual_seed(0)
    main = types.ModuleType("__main__")
    main.__dict__.update(torch=torch, dovetail=dovetail, show=show)
    sys.modules["__main__"] = main
    dovetail.config.warm_start = environment["WARM"] == "1"
    try:
        exec(compile(program, "/programs/program.py", "exec"), main.__dict__)
    except Exception:
        return {"error": traceback.format_exc()}
    return {"shown": shown, "stages": [[stage.name for stage in r.stages] for r in RECORDS.all()]}


def serve() -> None:
    for line in sys.stdin:
        given = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            found = run(given["program"], given["environment"])
            os.write(writing, json.dumps(found).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as found_there:
            text = found_there.read()
        os.waitpid(child, 0)
        print(text or json.dumps({"error": "the process ended early"}), flush=True)


if __name__ == "__main__":
    serve()

"""What is told of a failure of ours: the stage, the user's line, and a Python file that makes it happen again.

Where capture has succeeded the file has the text of its graph, and inputs like the graph's. Otherwise it has the
function and the arguments themselves, written down without the data of tensors (`dataless.py`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.fx

import dovetail
import dovetail.diagnostics.dataless as dataless
from dovetail.config import config
from dovetail.diagnostics import values
from dovetail.ir.callers import PACKAGE
from dovetail.ir.graphtext import code_text
from dovetail.ir.literals import error_in_words, has_literal, literal
from dovetail.options import USER_OPTIONS, Options

Call = tuple[Any, tuple[Any, ...], Mapping[str, Any]]  # a function and its arguments


def report(
    stage: str, error: BaseException, place: tuple[str, str], call: Call | None, options: Options,
    graph: torch.fx.GraphModule | None, inputs: Sequence[Any],
) -> str:  # fmt: skip
    """The message: which stage failed how, at which of the user's lines, and the repro's file.

    `place` is the function's name and where it is defined. The repro calls the graph, if there is one, with `inputs`
    like these, else `call`.
    """
    file, _, line = place[1].rpartition(":")
    at = user_line(error, graph) or f'  File "{file}", line {line}, in {place[0]}'
    return told(f"{stage} failed: {error_in_words(error)}\n{at}", call, options, graph, inputs)


def told(
    what: str, call: Call | None, options: Options, graph: torch.fx.GraphModule | None, inputs: Sequence[Any]
) -> str:
    """`what`, and how to see it again, as far as `config.repro_level` asks for it."""
    if config.repro_level == 0:
        return what
    try:
        path = save(text(what, call, options, graph, inputs))
        path = cut_down(path) if config.repro_level >= 3 and graph is not None else path
    except Exception as refused:  # whatever the user's objects, or the disk, have against it
        return f"{what}\n  No repro could be written: {error_in_words(refused)}"
    return f"{what}\n  To see it again: python {path}"


def cut_down(path: Path) -> Path:
    """The smaller file that `dovetail minify` makes, if it makes one."""
    smaller = path.with_name("minified.py")
    command = [sys.executable, "-m", "dovetail", "minify", str(path), "--out", str(smaller)]
    subprocess.run(command, env={**os.environ, "DOVETAIL_REPRO_LEVEL": "0"}, stdout=subprocess.DEVNULL, check=False)
    return smaller if smaller.exists() else path


def user_line(error: BaseException, graph: torch.fx.GraphModule | None) -> str:
    """Where in the user's program the stage was at work; else the first line of the graph; empty if unknown."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            continue
        for value in (frame.f_locals.get(name) for name in ("node", "self", "frame")):
            if isinstance(value, torch.fx.Node) and value.meta.get("stack"):
                return str(value.meta["stack"][-1].excerpt())
            if callable(getattr(type(value), "location", None)):
                return str(value.location().excerpt())
    nodes = graph.graph.nodes if graph is not None else ()
    return next((str(n.meta["stack"][-1].entry()) for n in nodes if n.meta.get("stack")), "")


def save(contents: str) -> Path:
    """The file, in a folder of its own that nobody else writes to."""
    if config.repro_dir is not None:
        os.makedirs(config.repro_dir, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="dovetail_repro_", dir=config.repro_dir)) / "repro.py"
    path.write_text(contents, encoding="utf-8")
    return path


def text(
    what: str, call: Call | None, options: Options, graph: torch.fx.GraphModule | None, inputs: Sequence[Any]
) -> str:
    """The file."""
    chosen = {name: getattr(options, name) for name in USER_OPTIONS if name not in ("strict", "suppress_errors")}
    if graph is not None:
        body = _graph(graph, inputs)
    else:
        body = f"function, args, kwargs = restored({dataless.written(call)!r})\n"
    comment = "\n".join(f"# {line}" for line in what.splitlines())
    return HEAD.format(
        told=comment, version=torch.__version__, paths=sys.path, body=body, backend=_value(options.backend),
        options=chosen, dynamic=options.dynamic, fullgraph=graph is not None or options.fullgraph,
    )  # fmt: skip


HEAD = '''\
{told}
#
# Run this file to see it again; it needs no data. PyTorch was {version}.
import sys

sys.path += [path for path in {paths!r} if path not in sys.path]

import torch
from torch import device, inf, nan

from dovetail.diagnostics import repro
from dovetail.diagnostics.dataless import restored, tensor

torch.manual_seed(0)

{body}

choices = dict(fullgraph={fullgraph}, dynamic={dynamic}, backend={backend}, options={options!r})


def main():
    repro.run(function, args, kwargs, **choices)
    print("nothing failed")


if __name__ == "__main__":
    main()
'''


def run(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], **choices: Any) -> None:
    """Compile and call, forward and backward, and compare with eager. What is wrong is raised.

    Every stage runs: what an earlier compilation has left on disk may be as wrong, and says nothing of the stages.
    """
    compiled = dovetail.compile(function, **choices)
    with dovetail.config.patch(strict=True, repro_level=0, warm_start=False):
        if kwargs or not all(isinstance(a, (torch.Tensor, int, float)) for a in args):
            results = [t for t in values.tensors(compiled(*args, **kwargs)) if t.requires_grad]
            if results:
                sum(t.abs().sum() for t in results).backward()
            return
        words = values.wrong(function, compiled, args)
    if words:
        raise values.WrongValues(words)


def _graph(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> str:
    """The captured graph as a function, what it mentions, and its inputs."""
    made = module.graph.python_code("self")
    source = re.sub(r"^def forward\(self(, )?", "def function(", code_text(module.graph), flags=re.M)
    lines = [f"{name} = {_value(value)}" for name, value in made.globals.items() if _mentions(source, name)]
    if any(node.op == "get_attr" for node in module.graph.nodes):
        lines.append(f"self = {_value(module)}")
    given = "".join(f"    {_value(value)},\n" for value in inputs)
    return "\n".join([*lines, source, "", f"args, kwargs = [\n{given}], {{}}", ""])


def _mentions(source: str, name: str) -> bool:
    return name not in IMPORTED and re.search(rf"\b{re.escape(name)}\b", source) is not None


IMPORTED = ("torch", "device", "inf", "nan")


def _value(value: Any) -> str:
    """Python that gives a value like it."""
    if type(value) is torch.Tensor or isinstance(value, torch.nn.Parameter):
        return f"tensor({', '.join(map(repr, dataless.metadata(value)))})"
    return literal(value) if has_literal(value) else f"restored({dataless.written(value)!r})"

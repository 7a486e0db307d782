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
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

Call = tuple[Any, tuple, Mapping[str, Any]]  # a function and its arguments


def report(
    stage: str, error: BaseException, place: tuple[str, str], call: Call | None, options: Options,
    graph: torch.fx.GraphModule | None, inputs: Sequence[Any], varying: Iterable[str] = (),
) -> str:  # fmt: skip
    """The message: which stage failed how, at which of the user's lines, and the repro's file.

    `place` is the function's name and where it is defined. The repro calls the graph, if there is one, with `inputs`
    like these, else `call`, whose sizes and numbers `varying` were symbolic.
    """
    file, _, line = place[1].rpartition(":")
    at = user_line(error, graph) or f'  File "{file}", line {line}, in {place[0]}'
    return told(f"{stage} failed: {error_in_words(error)}\n{at}", call, options, graph, inputs, varying)


def told(
    what: str, call: Call | None, options: Options, graph: torch.fx.GraphModule | None, inputs: Sequence[Any],
    varying: Iterable[str] = (),
) -> str:  # fmt: skip
    """`what`, and how to see it again, as far as `config.repro_level` asks for it."""
    if config.repro_level == 0:
        return what
    try:
        kept: list[torch.Tensor] | None = [] if config.repro_data else None
        contents = text(what, call, options, graph, inputs, kept, varying)
        path = save(contents, _own_folder() / "repro.py", kept)
        path = cut_down(path) if config.repro_level >= 3 and graph is not None else path
    except Exception as refused:  # whatever the user's objects, or the disk, have against it
        return f"{what}\n  No repro could be written: {error_in_words(refused)}"
    return f"{what}\n  To see it again: python {path}"


def cut_down(path: Path) -> Path:
    """The smaller file that `dovetail minify` makes, if it makes one."""
    smaller = path.with_name("minified.py")
    command = [sys.executable, "-m", "dovetail", "minify", str(path), "--out", str(smaller)]
    silent = subprocess.DEVNULL
    subprocess.run(command, env={**os.environ, "DOVETAIL_REPRO_LEVEL": "0"}, stdout=silent, stderr=silent, check=False)
    return smaller if smaller.exists() else path


def user_line(error: BaseException, graph: torch.fx.GraphModule | None) -> str:
    """Where in the user's program the stage was at work; else the first line of the graph; empty if unknown."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            continue
        for value in (frame.f_locals.get(name) for name in ("node", "self", "frame")):
            if isinstance(value, torch.fx.Node) and value.meta.get("stack"):
                return str(value.meta["stack"][-1].excerpt())
            if value is not None and callable(getattr(type(value), "location", None)):
                return str(value.location().excerpt())
    nodes = graph.graph.nodes if graph is not None else ()
    return next((str(n.meta["stack"][-1].entry()) for n in nodes if n.meta.get("stack")), "")


def _own_folder() -> Path:
    """One that nobody else writes to."""
    if config.repro_dir is not None:
        os.makedirs(config.repro_dir, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="dovetail_repro_", dir=config.repro_dir))


def save(contents: str, path: Path, kept: Sequence[torch.Tensor] | None = None) -> Path:
    """The file, and the tensors that it reads, if any, beside it."""
    path.write_text(contents, encoding="utf-8")
    if kept is not None:
        torch.save([_saved(tensor) for tensor in kept], path.with_suffix(".pt"))
    return path


def _saved(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without what others have attached to it."""
    plain, grad = tensor.detach(), tensor.requires_grad
    return torch.nn.Parameter(plain, grad) if isinstance(tensor, torch.nn.Parameter) else plain.requires_grad_(grad)


def data(file: str) -> list[torch.Tensor]:
    """The tensors that were saved beside the file."""
    path = Path(file).with_suffix(".pt")
    if not path.exists():
        raise FileNotFoundError(f"{file} reads its tensors from {path}, which is not there: keep the two together")
    found: list[torch.Tensor] = torch.load(path, weights_only=True)
    return found


def text(
    what: str, call: Call | None, options: Options, graph: torch.fx.GraphModule | None, inputs: Sequence[Any],
    kept: list[torch.Tensor] | None = None, varying: Iterable[str] = (),
) -> str:  # fmt: skip
    """The file. Tensors are added to `kept`, if there is such a list, for the file to read."""
    chosen = {name: getattr(options, name) for name in USER_OPTIONS if name not in ("strict", "suppress_errors")}
    if graph is not None:
        body, varying = _graph(graph, inputs, kept), symbolic(graph)
    else:
        body = f"function, args, kwargs = {_restored(call, kept)}\n"
    body = body if kept is None else f"kept = repro.data(__file__)\n\n{body}"
    comment = "\n".join(f"# {line}" for line in what.splitlines())
    return HEAD.format(
        told=comment, version=torch.__version__, paths=sys.path, body=body, backend=_value(options.backend, None),
        options=chosen, dynamic=options.dynamic, fullgraph=graph is not None or options.fullgraph,
        needs="it needs no data" if kept is None else "its tensors are in the file beside it",
        varying=sorted(varying), hint=f"; {HINT}" if kept is None else "",
    )  # fmt: skip


def symbolic(module: torch.fx.GraphModule) -> Iterator[str]:
    """The sizes and numbers of a graph's inputs that are no constants, as a function of these names calls them."""
    for node in module.graph.nodes:
        fake = node.meta.get("fake") if node.op == "placeholder" else None
        if isinstance(fake, torch.Tensor):
            yield from (f"{node.target}.shape[{k}]" for k, size in enumerate(fake.shape) if not isinstance(size, int))
        elif fake is not None:
            yield str(node.target)


HINT = "if it depends on what is in the tensors, config.repro_data = True keeps that"
HEAD = '''\
{told}
#
# Run this file to see it again; {needs}. PyTorch was {version}.
import sys

sys.path += [path for path in {paths!r} if path not in sys.path]

import torch
from torch import device, inf, nan

from dovetail.diagnostics import repro
from dovetail.diagnostics.dataless import computed, restored, tensor

torch.manual_seed(0)

{body}

choices = dict(fullgraph={fullgraph}, dynamic={dynamic}, backend={backend}, options={options!r})
varying = {varying}


def main():
    repro.run(function, args, kwargs, varying, **choices)
    print("nothing failed{hint}")


if __name__ == "__main__":
    main()
'''


def run(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], varying: Iterable[str] = (), **choices: Any
) -> None:
    """Compile and call, forward and backward, and compare with eager. What is wrong is raised.

    Every stage runs: what an earlier compilation has left on disk may be as wrong, and says nothing of the stages. What
    is right is run again by kernels that check themselves: memory that should not be read may have had right values.
    """
    checks = (False, True) if choices.get("backend", "dovetail") == "dovetail" else (False,)
    for check in checks:
        with dovetail.config.patch(strict=True, repro_level=0, warm_start=False, check_kernels=check):
            compiled = dovetail.compile(function, **choices)
            if varying:
                compiled._dovetail_dispatcher.varying = frozenset(varying)
            _run(function, compiled, args, kwargs)


def _run(function: Any, compiled: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if kwargs or not all(isinstance(a, (torch.Tensor, int, float)) for a in args):
        results = [t for t in values.tensors(compiled(*args, **kwargs)) if t.requires_grad]
        if results:
            total: Any = sum(t.abs().sum() for t in results)
            total.backward()
    elif words := values.wrong(function, compiled, args):
        raise values.WrongValues(words)


def _graph(module: torch.fx.GraphModule, inputs: Sequence[Any], kept: list[torch.Tensor] | None) -> str:
    """The captured graph as a function, what it mentions, and its inputs."""
    made = module.graph.python_code("self")
    source = re.sub(r"^def forward\(self(, )?", "def function(", code_text(module.graph), flags=re.M)
    lines = [f"{name} = {_value(value, kept)}" for name, value in made.globals.items() if _mentions(source, name)]
    if any(node.op == "get_attr" for node in module.graph.nodes):
        lines.append(f"self = {_value(module, kept)}")
    given = "".join(f"    {_value(value, kept)},\n" for value in inputs)
    return "\n".join([*lines, source, "", f"args, kwargs = [\n{given}], {{}}", ""])


def _mentions(source: str, name: str) -> bool:
    return name not in IMPORTED and re.search(rf"\b{re.escape(name)}\b", source) is not None


IMPORTED = ("torch", "device", "inf", "nan")


def _value(value: Any, kept: list[torch.Tensor] | None) -> str:
    """Python that gives a value like it."""
    if type(value) in dataless.PLAIN:
        if kept is None:
            return f"tensor({', '.join(map(repr, dataless.metadata(value)))})"
        number = dataless.number_of(value, kept)
        return f"kept[{number}]" if value.is_leaf else f"computed(kept[{number}])"
    return literal(value) if has_literal(value) else _restored(value, kept)


def _restored(value: Any, kept: list[torch.Tensor] | None) -> str:
    return f"restored({dataless.written(value, kept)!r}{'' if kept is None else ', kept'})"

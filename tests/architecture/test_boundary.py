"""The package builds what torch.compile is made of, so it may not lean on it."""

from __future__ import annotations

import ast
import os
import sys

import pytest

from tests.forks import python

from .project import PACKAGE, ROOT, load, report

MODULES = load()

FORBIDDEN = (
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch.aot_autograd",
    "torch._functorch.partitioners",
    "torch.fx.experimental.proxy_tensor",
    "torch.compile",
    "torch.jit",
    "torch.export",
)
# A user's program may ask these; the tables of capture name them. torch itself has loaded them already.
NAMED_IN_TABLES = {
    "torch.jit.is_scripting",
    "torch.jit.is_tracing",
    "torch.jit.annotate",
    "torch.jit.isinstance",
}
THIRD_PARTY = {"torch", "llvmlite", "numpy", "rich", "bytecode", "networkx", "triton", "click", "jinja2"}


def forbidden(name: str) -> bool:
    return name not in NAMED_IN_TABLES and any(name == f or name.startswith(f + ".") for f in FORBIDDEN)


def test_no_import_of_what_is_being_built() -> None:
    bad = [f"{m.where}:{i.line}: imports {i.target}" for m in MODULES for i in m.imports if forbidden(i.target)]
    report(bad, "These parts of torch are what this package replaces; it must not import them.")


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of an attribute chain that starts at a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def test_no_use_of_it_through_attributes() -> None:
    bad = []
    for module in MODULES:
        inner = {id(n.value) for n in module.nodes if isinstance(n, ast.Attribute)}
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                name = dotted(node)
                if name and forbidden(name):
                    bad.append(f"{module.where}:{node.lineno}: uses {name}")
    report(bad, "These parts of torch are what this package replaces; it must not reach them through torch either.")


def test_no_import_by_name_outside_interop() -> None:
    bad = []
    for module in MODULES:
        for node in module.nodes:
            if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
                continue
            callee, text = dotted(node.func) or "", node.args[0].value
            if callee.split(".")[-1] in ("import_module", "__import__") and isinstance(text, str):
                if forbidden(text) and module.part != "interop":
                    bad.append(f"{module.where}:{node.lineno}: {callee}({text!r})")
    report(bad, "Only interop/ may load another compiler, and only when the user names it.")


def test_only_declared_dependencies() -> None:
    allowed = THIRD_PARTY | set(sys.stdlib_module_names) | {PACKAGE}
    bad = [
        f"{m.where}:{i.line}: imports {i.target}"
        for m in MODULES
        for i in m.imports
        if i.target.split(".")[0] not in allowed
    ]
    report(bad, f"The package depends on {', '.join(sorted(THIRD_PARTY))} and the standard library; nothing else.")


COMPILE_ONE = """
import sys, torch, dovetail
with torch.no_grad():
    y = dovetail.compile({function})({inputs})
heavy = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "torch._functorch.partitioners", "sympy")
bad = sorted(m for m in sys.modules if m.startswith(heavy))
assert not bad, bad[:5]
print("clean")
"""

PROGRAMS = {
    "pointwise and softmax": ("lambda x: torch.softmax(torch.sin(x) * 2 + x.relu(), -1)", "torch.randn(8, 16)"),
    "a small network": (
        "torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).eval()",
        "torch.randn(4, 8)",
    ),
    "views and reductions": ("lambda x: x.reshape(4, 2, 4).transpose(1, 2).sum(-1).mean()", "torch.randn(8, 4)"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiling_does_not_load_it(name: str) -> None:
    function, inputs = PROGRAMS[name]
    program = COMPILE_ONE.format(function=function, inputs=inputs)
    done = python("-c", program, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.stdout.strip() == "clean", done.stderr[-2000:]

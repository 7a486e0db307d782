"""Every tensor that the package makes says where it is: a program's `with torch.device(...)` is not meant for it."""

from __future__ import annotations

import ast

from torch.utils._device import _device_constructors

from dovetail.ir.devices import TRAITS

from .project import ROOT, load, report

FACTORIES = {f.__name__ for f in _device_constructors()}


def unplaced(module):
    for node in module.nodes:
        named = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if named and isinstance(node.func.value, ast.Name) and node.func.value.id == "torch":
            given = {k.arg for k in node.keywords}
            if node.func.attr in FACTORIES and not given & {"device", None}:
                yield node.lineno


def test_made_tensors_have_a_device():
    """The reference evaluator is for tests."""
    report([f"{m.where}:{line}" for m in load() if m.path.name != "evaluate.py" for line in unplaced(m)], __doc__)


def named(module):
    for node in module.nodes:
        if isinstance(node, ast.Constant) and node.value in KINDS:
            yield node.lineno


KINDS = frozenset(TRAITS)
PLUGS = ("codegen/cpu", "codegen/gpu", "runtime/cpu", "runtime/gpu", "ir/devices.py", "targets.py")


def test_devices_are_named_in_one_place():
    """A choice between devices is a row of `ir/devices.py`, so that another one needs no search."""
    others = {str(m.path.relative_to(ROOT / "dovetail")): m for m in load()}
    found = {name: list(named(m)) for name, m in others.items() if not name.startswith(PLUGS)}
    assert {name: lines for name, lines in found.items() if lines} == {}

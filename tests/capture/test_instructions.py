"""Every canonical instruction has a handler or a reason for having none, and a step that ends a graph or a reason."""

from __future__ import annotations

import dovetail.capture.driver  # noqa: F401 (it fills the tables)
from dovetail.bytecode import ROWS
from dovetail.bytecode.instructions import CANONICAL
from dovetail.capture.breaks.steps import STEPS
from dovetail.capture.tables.opcode_handlers import HANDLERS


def test_handlers():
    assert {name for name in CANONICAL if not ROWS[name].refused} == set(HANDLERS)


def test_steps():
    captured = {name for name in CANONICAL if not ROWS[name].refused}
    assert {name for name in captured if not ROWS[name].whole} == set(STEPS)


def test_what_has_no_handler_has_no_other_column():
    for name in CANONICAL - set(HANDLERS):
        row = ROWS[name]
        assert not (row.reads or row.writes or row.ends or row.tests or row.gives or row.whole), name

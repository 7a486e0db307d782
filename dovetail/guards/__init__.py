"""Guards: when may a compiled entry be used again."""

from dovetail.guards.build import (
    Entry,
    build,
    failing,
    for_one_call,
    inputs_shown,
    load,
    parameters,
    real_inputs,
    run_residual,
)
from dovetail.guards.explain import SPENT, Failure
from dovetail.guards.filtering import filtered
from dovetail.guards.signature import root_function
from dovetail.guards.sizes import line_text, refuse_specialized
from dovetail.guards.sizes import needed as sizes_needed
from dovetail.guards.sizes import report as sizes_report
from dovetail.guards.state import Snapshot, snapshot

__all__ = [
    "SPENT", "Entry", "Failure", "Snapshot", "build", "failing", "filtered", "for_one_call", "inputs_shown",
    "line_text", "load", "parameters", "real_inputs", "refuse_specialized", "root_function", "run_residual",
    "sizes_needed", "sizes_report", "snapshot",
]  # fmt: skip

"""Guards: when may a compiled entry be used again."""

from dovetail.guards.build import Entry, build, for_one_call, inputs_shown, real_inputs
from dovetail.guards.explain import Failure
from dovetail.guards.sizes import refuse_specialized
from dovetail.guards.sizes import report as sizes_report
from dovetail.guards.state import Snapshot, outside_reason, snapshot

__all__ = [
           "Entry",
           "Failure",
           "Snapshot",
           "build",
           "for_one_call",
           "inputs_shown",
           "outside_reason",
           "real_inputs",
           "refuse_specialized",
           "sizes_report",
           "snapshot",
]  # fmt: skip

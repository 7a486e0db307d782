"""Collectives begin where they are called, and are waited for where something reads their results."""

from __future__ import annotations

import pytest

from dovetail.codegen.host import graph_segments
from dovetail.ir.parse import parse_program
from dovetail.ir.spec import verify
from dovetail.ir.text import program_text
from dovetail.schedule import run_beside

HEAD = """\
input a0: float32[4]
output b1: float32[4]
temporary b4: float32[4]
output b2: float32[4]
output b3: float32[2, 2]
"""
BEGINS = "library all_reduce_1: b1, = _c10d_functional.all_reduce.default(a0, 'sum', '0')\n"
READS = "group k3 for i0 < 4\n  loop\n    b4[i0] = cos(b1[i0])\n"
BESIDE = "group k2 for i0 < 4\n  loop\n    b2[i0] = sin(a0[i0])\n"
WRITES = "group k4 for i0 < 4\n  loop\n    a0[i0] = sin(a0[i0])\n"
VIEW = "view b3 = b1\n"
OUTPUTS = "output b1\noutput b2\n"


def shown(items: str, outputs: str = OUTPUTS) -> str:
    program = parse_program(HEAD + items + outputs)
    found = run_beside(program)
    verify(found)
    names = {"view": "view", "library": "", "group": ""}
    lines = [line for line in program_text(found).splitlines() if line.split()[0] in names]
    return " ".join("view" if line.startswith("view") else line.split()[1].rstrip(":") for line in lines)


def test_what_does_not_read_the_result_runs_beside() -> None:
    assert shown(BEGINS + BESIDE + READS) == "all_reduce_1 k2 all_reduce_1_wait k3"


def test_nothing_runs_beside_and_it_stays_one_call() -> None:
    program = parse_program(HEAD + BEGINS + READS + BESIDE + OUTPUTS)
    assert run_beside(program) == program


def test_what_is_returned_is_waited_for() -> None:
    assert shown(BEGINS + BESIDE) == "all_reduce_1 k2 all_reduce_1_wait"


def test_views_come_behind_the_wait() -> None:
    assert shown(BEGINS + VIEW + BESIDE + READS, OUTPUTS + "output b3\n") == "all_reduce_1 k2 all_reduce_1_wait view k3"


def test_what_it_reads_is_not_written_to_meanwhile() -> None:
    assert shown(BEGINS + BESIDE + WRITES, OUTPUTS + "mutate a0 = a0\n") == "all_reduce_1 k2 all_reduce_1_wait k4"


def test_a_bucket_of_outputs_does_not_leave_before() -> None:
    """Not with the result of a collective, nor while one is under way: its graphs are replayed alone."""
    assert shown(BEGINS + BESIDE, "output b1 in bucket 0\noutput b2 in bucket 1\n") == "all_reduce_1 k2"
    outputs = "output b2 in bucket 0\noutput b1 in bucket 1\n"
    assert shown(BEGINS + BESIDE + READS, outputs) == "all_reduce_1 k2 all_reduce_1_wait k3"


def test_one_of_two_is_still_under_way() -> None:
    other = "temporary b5: float32[4]\n" + BEGINS.replace("_1:", "_5:").replace("b1", "b5")
    reads = "temporary b6: float32[4]\n" + READS.replace("b1", "b5").replace("b4", "b6").replace("k3", "k6")
    order = "all_reduce_5 all_reduce_1 k2 all_reduce_1_wait k3 all_reduce_5_wait k6"
    assert shown(other + BEGINS + BESIDE + READS + reads) == order


def test_no_recording_is_cut_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_segments, "FIRST", 1)
    monkeypatch.setattr(graph_segments, "GROWTH", 1)
    text = HEAD + BEGINS + BESIDE + READS + OUTPUTS
    program = parse_program(text.replace("[4]", "[4] on cuda:0").replace("[2, 2]", "[2, 2] on cuda:0"))
    assert graph_segments.cuts(program) == {1, 2}
    assert graph_segments.cuts(run_beside(program)) == {3}

"""Every Python block of every page runs, and prints what the page says that it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

import dovetail
from dovetail.config import config
from dovetail.errors.codes import PAGE

from .blocks import ROOT, blocks, run

#: Pages whose blocks mean something else; their own tests read them by the same means.
OTHERS = {PAGE.name: "tests/diagnostics/test_codes.py", "how-to-add.md": "tests/documents/test_how_to_add.py"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "dovetail").rglob("*.md"))]
RUN = [page for page in PAGES if page.name not in OTHERS and blocks(page)]
FIRST = "import torch, dovetail\nx = torch.tensor([1.0, 2.0, 3.0])\n"
#: What a page takes for granted.
GIVEN = {
    "README.md": """
model = torch.nn.Linear(3, 3)
x, y = torch.ones(2, 3), torch.tensor([[0.2, 0.5, 0.3]] * 2)
torch.save(model.state_dict(), "weights.pt")
my_backend = lambda graph, example_inputs: graph.forward
optimizer = torch.optim.Adam(model.parameters())
""",
    "seeing.md": """
import json, pathlib
model = step = dovetail.compile(torch.nn.Linear(3, 3))
pathlib.Path("trace").mkdir()
event = json.dumps({"event": "stage", "seconds": 1.0})
pathlib.Path("trace/dovetail_trace_host_rank0_4711.jsonl").write_text(event)
step_of_model = step
step = lambda x: step_of_model(x).sum()
""",
}


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_the_blocks_of_a_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "program"}
    exec(FIRST + GIVEN.get(page.name, ""), scope)
    try:
        with config.patch(**config.to_dict() | {"warm_start": True}):
            for block in blocks(page):
                found = run(block, scope)
                assert not block.printed or found == block.printed, block.name
    finally:
        dovetail.reset()


def test_the_pages_are_found() -> None:
    names = {page.name for page in RUN}
    assert {"README.md", "tour.md", "export.md", "troubleshooting.md"} <= names
    assert all((ROOT / test).exists() for test in OTHERS.values())

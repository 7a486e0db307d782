"""How long the report of a 12-layer GPT-2's training takes to open in a browser, and its pictures in docs/.

    python -m benchmarks.page [--runs N] [--pictures FOLDER]

Needs Chromium or Chrome (`apt-get install chromium`). The program below has what the page is there for: a value that
Python asks for in the middle of a step, and sequences of several lengths.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from dovetail.commands.report import report

from .browser import Tab, browser

PROGRAM = """\
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import dovetail

config = GPT2Config(n_layer=12, n_embd=256, n_head=4, vocab_size=5000, n_positions=256, use_cache=False)
model = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
history = []


@dovetail.compile
def step(ids):
    optimizer.zero_grad()
    loss = model(ids, labels=ids).loss
    loss.backward()
    history.append(loss.item())
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


for length in (64, 64, 96, 128):
    step(torch.randint(0, 5000, (2, length)))
"""
TIMES = """new Promise((done) => new PerformanceObserver((list) => {
    const page = performance.getEntriesByType("navigation")[0];
    const seen = list.getEntriesByName("first-contentful-paint")[0];
    if (seen) done([page.domContentLoadedEventEnd, page.loadEventEnd, seen.startTime]);
}).observe({type: "paint", buffered: true}))"""


def recorded(folder: Path) -> Path:
    """Runs the program in this folder, and makes the page of it."""
    page = folder / "report.html"
    (folder / "train.py").write_text(PROGRAM)
    given = {**os.environ, "DOVETAIL_TRACE": "trace", "PYTHONPATH": str(Path(__file__).parents[1])}
    with contextlib.chdir(folder):
        subprocess.run([sys.executable, "train.py"], env=given, check=True)
        report(Path("trace"), page)
    return page


def opening(tab: Tab, page: Path, runs: int) -> list[list[float]]:
    """Milliseconds until the document was read, the page had loaded, and something was seen: each in all runs."""
    found = []
    for _ in range(runs):
        tab.open(page.as_uri())
        found.append(tab.run(TIMES))
    return [list(column) for column in zip(*found, strict=True)]


def pictures(tab: Tab, page: Path, folder: Path) -> None:
    """What to fix first; and the chart above a kernel that is opened."""
    tab.open(page.as_uri())
    tab.resize(1060, 800)
    (folder / "report.png").write_bytes(tab.picture())
    tab.resize(1060, 1010)
    tab.click("details:has(details):not(:has(tr:nth-child(5)))[id^=k-] > summary")  # of few lines
    tab.click("details[open] > details > summary")
    tab.run("document.getElementById('time').scrollIntoView()")
    (folder / "report-kernels.png").write_bytes(tab.picture())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--pictures", type=Path, help="also write PNG files into this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpt2-") as folder, browser() as tab:
        page = recorded(Path(folder))
        print(f"{page.stat().st_size / 1e6:.2f} MB")
        found = opening(tab, page, options.runs)
        for name, times in zip(("document read", "loaded", "first seen"), found, strict=True):
            print(f"{name}: {statistics.median(times):.0f} ms (median of {len(times)}, at most {max(times):.0f} ms)")
        print(f"asked for: {len(set(tab.requests))} address; the console was told {len(tab.problems)} times")
        if options.pictures:
            pictures(tab, page, options.pictures)


if __name__ == "__main__":
    main()

"""Code and documents speak to their readers: no machine, no registry, no running commentary of how they came about."""

from __future__ import annotations

import re
from pathlib import Path

from .project import ROOT, report

FOLDERS = ("dovetail", "tests", "benchmarks", "docs", "examples", ".ci")
SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".cfg", ".svg", ""}

PATTERNS = {
    "a path of one machine": re.compile(r"(?<![\w.])/(?:work|root|home|opt|Users)/\w"),
    "a registry or an index": re.compile(r"(?:pypi\.org|pythonhosted\.org|download\.pytorch|--(?:extra-)?index-url)"),
    "a ticket's number": re.compile(r"\b(?:issue|ticket|milestone)s?\s+#?\d+\b", re.IGNORECASE),
    "a conversation": re.compile(r"\b(?:as (?:requested|discussed)|the brief|my (?:task|lead))\b", re.IGNORECASE),
    "a note to self": re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b"),
}


def texts() -> list[Path]:
    """Every text file of ours, this one aside: it spells the patterns out."""
    found = [p for p in ROOT.iterdir() if p.is_file() and p.name != ".git"]  # a file in a worktree
    for folder in FOLDERS:
        found += [p for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return sorted(p for p in found if p.suffix in SUFFIXES and p != Path(__file__).resolve())


def test_texts_name_no_machine_and_no_ticket() -> None:
    bad = []
    for path in texts():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            for what, pattern in PATTERNS.items():
                if pattern.search(line):
                    bad.append(f"{path.relative_to(ROOT)}:{number}: {what}: {line.strip()[:80]}")
    report(bad, "These lines speak of the place or the way this was made; say what holds everywhere instead.")


def test_the_patterns_catch_what_they_name() -> None:
    samples = ["see /root/x", "--index-url", "issue 12", "as discussed", "# TODO later"]
    assert all(pattern.search(sample) for pattern, sample in zip(PATTERNS.values(), samples, strict=True))

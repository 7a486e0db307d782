"""Files that the documents name are there."""

from __future__ import annotations

import re

import pytest

from tests.architecture.project import ROOT

PATH = re.compile(r"`((?:\w+/)+(?:\w+\.py)?)`")
FILE = re.compile(r"`(\w+\.py)`")
#: Documents may leave out the folder that they are about.
BEFORE = ("", "dovetail", "dovetail/normalize", "dovetail/codegen/cpu", "dovetail/codegen/gpu")
DOCUMENTS = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_lead_to_files(document) -> None:
    named = set(PATH.findall(document.read_text()))
    before = BEFORE[:2] if document.name == "architecture.md" else BEFORE
    assert [path for path in sorted(named) if not any((ROOT / each / path).exists() for each in before)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_named_without_a_folder_are_somewhere(document) -> None:
    folders = ("dovetail", "tests", "benchmarks")
    there = {file.name for folder in folders for file in (ROOT / folder).rglob("*.py")}
    others = {"symbolic_convert.py"}  # PyTorch's
    assert sorted(set(FILE.findall(document.read_text())) - there - others) == []


@pytest.mark.parametrize("document", [*DOCUMENTS, *(ROOT / "dovetail").rglob("*.md")], ids=lambda path: path.name)
def test_links_lead_to_files_and_to_their_headings(document) -> None:
    lost = []
    for target, heading in LINK.findall(CODE.sub("", document.read_text())):
        found = (document.parent / target) if target else document
        if not found.exists() or heading and heading not in headings(found.read_text()):
            lost.append(f"{target}#{heading}")
    assert lost == []


def headings(text: str) -> set[str]:
    """The names that links to a page's headings have."""
    plain = (re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()) for line in re.findall(r"^#+ .*$", text, re.M))
    return {name.replace(" ", "-") for name in plain} | set(re.findall(r'<a id="(.+?)">', text))

"""The pages that are written from declarations say what those say, and the wheel has every page."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail.commands import main, pages

from .blocks import ROOT
from .reference import WRITTEN


@pytest.mark.parametrize("name", WRITTEN)
def test_the_page_is_what_the_declarations_say(name: str) -> None:
    assert pages.text(name) == WRITTEN[name](), "run `python -m tests.documents.reference`"


@pytest.mark.parametrize("name", pages.titles())
def test_help_prints_a_page(name: str) -> None:
    said = CliRunner().invoke(main, ["help", name])
    assert said.exit_code == 0 and said.output.strip() == pages.text(name).strip()
    assert f"  {name} " in CliRunner().invoke(main, ["help"]).output


def test_the_wheel_has_every_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packed: set[Path] = set()
    for package, patterns in project["tool"]["setuptools"]["package-data"].items():
        for pattern in patterns:
            packed.update((ROOT / package.replace(".", "/")).glob(pattern))
    assert {*(ROOT / "dovetail").rglob("*.md")} <= packed

"""The pages for users that lie in the package: `dovetail help NAME` prints one, with a browser at hand or not."""

from __future__ import annotations

from pathlib import Path

PAGES = Path(__file__).parents[1] / "pages"


def titles() -> dict[str, str]:
    """What there is: the name of each page and its heading."""
    found = {}
    for path in sorted(PAGES.glob("*.md")):
        with path.open(encoding="utf-8") as file:
            found[path.stem] = file.readline().removeprefix("# ").strip()
    return found


def text(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")

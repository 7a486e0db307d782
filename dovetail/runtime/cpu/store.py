"""Object code on disk, shared by processes: one file for each key, written atomically.

A file is a checksum and the payload; one that does not check is ignored, as is a folder that
cannot be written.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

_DIGEST = 32


class Store:
    """Blobs by key under `folder`; None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def get(self, key: str) -> bytes | None:
        if self.folder is None:
            return None
        try:
            content = (self.folder / key[:2] / key).read_bytes()
        except OSError:
            return None
        payload = content[_DIGEST:]
        return payload if hashlib.sha256(payload).digest() == content[:_DIGEST] else None

    def put(self, key: str, payload: bytes) -> None:
        if self.folder is None:
            return
        place = self.folder / key[:2]
        try:
            place.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=place)
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            os.replace(name, place / key)
        except OSError:
            Path(name).unlink(missing_ok=True)


def default_folder() -> Path | None:
    """`DOVETAIL_CACHE_DIR`, or dovetail under the user's cache folder; empty means no cache."""
    chosen = os.environ.get("DOVETAIL_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "dovetail"

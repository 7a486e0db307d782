"""Object code, and whole compilations, on disk, shared by processes: one file for each key, written atomically.

A file is a checksum and the payload; one that does not check is ignored, as is a folder that
cannot be written. The checksum is of the key too: a file in another's place does not check either.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_DIGEST = 32
OLD = 3600.0  # seconds after which a use is noted again
#: The keys that this process has found or written.
USED: set[str] = set()


class Store:
    """Blobs by key under `folder`; None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def get(self, key: str) -> bytes | None:
        if self.folder is None:
            return None
        path = self.folder / key[:2] / key
        try:
            content = path.read_bytes()
            if time.time() - path.stat().st_mtime > OLD:
                os.utime(path)
        except OSError:
            return None
        payload = content[_DIGEST:]
        if _checksum(key, payload) != content[:_DIGEST]:
            return None
        USED.add(key)
        return payload

    def has(self, key: str) -> bool:
        """Is there a file for it? Whether it checks is known when it is read."""
        return self.folder is not None and (self.folder / key[:2] / key).exists()

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
                file.write(_checksum(key, payload) + payload)
            os.replace(name, place / key)
            USED.add(key)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)

    def trim(self, most: int) -> int:
        """Delete what was used least recently, down to nine tenths of so many bytes if there are more: the files."""
        found = []
        for path in self.files():
            with contextlib.suppress(OSError):
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        left, deleted = sum(size for _, size, _ in found), 0
        if left <= most:
            return 0
        for _, size, path in sorted(found):
            if left <= most * 0.9:
                break
            with contextlib.suppress(OSError):  # another process was faster
                path.unlink()
                deleted += 1
            left -= size
        return deleted

    def files(self) -> Iterator[Path]:
        """Those of all blobs: in folders named by the first two letters of their keys."""
        found = () if self.folder is None else self.folder.glob("[0-9a-f][0-9a-f]/*")
        return (path for path in found if path.is_file())


def _checksum(key: str, payload: bytes) -> bytes:
    return hashlib.sha256(b"%d %s" % (len(key), key.encode()) + payload).digest()


def default_folder() -> Path | None:
    """`DOVETAIL_CACHE_DIR`, or dovetail under the user's cache folder; empty means no cache.

    A user without a home has none: what begins with ~ then is a place in the working directory. Relative paths in
    `XDG_CACHE_HOME` are ignored, as its specification asks.
    """
    chosen = os.environ.get("DOVETAIL_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    for base in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        if os.path.isabs(base):
            return Path(base) / "dovetail"
    return None

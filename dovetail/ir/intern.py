"""Tables of hash-consed nodes that forget what nobody uses any more.

A node in use must stay in its table, or an equal one would become a second object. So a table is trimmed by looking:
a node that only the table refers to goes. Newest first, since a node refers to older ones.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from dovetail.ir import stores

#: Nodes in a table before it is first trimmed: about a hundred megabytes.
LEAST = 200_000


class InternTable(dict[Any, Any]):
    """key -> node. `lock` is held while a node is added; looking one up needs no lock.

    `caches` are functions that empty caches which refer to nodes.
    """

    def __init__(self, caches: tuple[Callable[[], None], ...] = ()) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.caches = list(caches)
        self.limit = LEAST
        stores.emptied_by(self.forget)

    def forget(self) -> None:
        """Trim now."""
        with self.lock:
            self.trim()

    def add(self, key: Any, make: Callable[[], Any]) -> Any:
        """The node for `key`, made now unless another thread was faster."""
        with self.lock:
            found = self.get(key)
            if found is None:
                if len(self) >= self.limit:
                    self.trim()
                found = self.setdefault(key, make())  # the same thread may have made one since, in a finalizer
            return found

    def trim(self) -> None:
        """Drop nodes that nothing else refers to. The caller holds the lock."""
        for clear in self.caches:
            clear()
        keys = list(self)
        while keys:  # a key refers to nodes too, so none is kept longer than needed
            key = keys.pop()
            node = self.pop(key)
            # `node` and getrefcount's argument are two references. Whoever took the node from the table before it
            # was popped holds a third; whoever looks after that waits for the lock.
            if sys.getrefcount(node) > 2:
                self[key] = node
        self.limit = max(LEAST, 2 * len(self))

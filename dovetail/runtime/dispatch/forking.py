"""Fork while another thread compiles: the child has no such thread, and what it was doing would stay half done."""

from __future__ import annotations

import os
from typing import Any

PATIENCE = 60.0  # seconds


class ForkGuard:
    """Lets a fork wait until nobody else holds `lock`; gives up waiting in case its holder waits for the fork."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.held = lock, False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self.before, after_in_parent=self.after, after_in_child=self.in_child)

    def before(self) -> None:
        self.held = self.lock.acquire(timeout=PATIENCE)

    def after(self) -> None:
        if self.held:
            self.lock.release()

    def in_child(self) -> None:
        if self.held:
            self.lock.release()
        else:
            self.lock._at_fork_reinit()

"""What asking for logs costs those who did not."""

from __future__ import annotations

import logging
import threading

from dovetail.diagnostics import logs


def test_asking_whether_a_log_is_on_takes_no_lock_of_the_process():
    """Ctrl-C while such a lock is taken leaves it taken, and other threads would never compile again."""
    logs.is_on("guards")
    held, asked = threading.Event(), threading.Event()

    def hold():
        with logging._lock:
            held.set()
            asked.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    asker = threading.Thread(target=logs.is_on, args=("guards",))
    asker.start()
    asker.join(5)
    waits = asker.is_alive()
    asked.set()
    holder.join()
    assert not waits

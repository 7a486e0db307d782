"""Phase 2: run bytecode symbolically, without executing the user's code."""

from dovetail.capture.entry import capture

__all__ = ["capture"]

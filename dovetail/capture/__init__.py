"""Phase 2: run bytecode symbolically, without executing the user's code."""

from dovetail.capture.breaks.resume import eager as resume_eagerly
from dovetail.capture.entry import capture, capture_with_breaks
from dovetail.capture.watching import Watch

__all__ = ["Watch", "capture", "capture_with_breaks", "resume_eagerly"]

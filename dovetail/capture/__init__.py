"""Phase 2: run bytecode symbolically, without executing the user's code."""

from dovetail.capture.breaks.resume import eager as resume_eagerly
from dovetail.capture.entry import capture, capture_with_breaks

__all__ = ["capture", "capture_with_breaks", "resume_eagerly"]

"""Phase 5: from a functional ATen graph to loops."""

from dovetail.lower.device_split import in_turns
from dovetail.lower.lower import lower
from dovetail.lower.stages import in_stages

__all__ = ["in_stages", "in_turns", "lower"]

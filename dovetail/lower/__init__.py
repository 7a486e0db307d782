"""Phase 5: from a functional ATen graph to loops."""

from dovetail.lower.lower import lower
from dovetail.lower.stages import in_stages
from dovetail.lower.turns import in_turns

__all__ = ["in_stages", "in_turns", "lower"]

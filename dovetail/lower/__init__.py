"""Phase 5: from a functional ATen graph to loops."""

from dovetail.lower.lower import lower

__all__ = ["lower"]

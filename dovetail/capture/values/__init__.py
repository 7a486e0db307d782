"""What the symbolic interpreter's stack and variables hold: one small class per kind of value."""

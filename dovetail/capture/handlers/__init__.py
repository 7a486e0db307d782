"""Opcode handlers, by theme. `table.HANDLERS` is complete once `handlers.all` is imported."""

"""Opcode handlers, by theme, each of which fills `opcode_handlers.HANDLERS`."""

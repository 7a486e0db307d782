"""Tables that the files above fill: opcode handlers, known callables, functions that become nodes."""

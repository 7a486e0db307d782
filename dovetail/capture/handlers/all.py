"""Importing this module fills the handler table."""

from dovetail.capture.handlers import build, call, coroutines, flow, stack
from dovetail.capture.tables.opcode_handlers import HANDLERS

__all__ = ["HANDLERS", "build", "call", "coroutines", "flow", "stack"]

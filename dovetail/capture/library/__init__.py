"""What capture knows about functions that it does not trace: handlers, stand-ins, pure functions."""

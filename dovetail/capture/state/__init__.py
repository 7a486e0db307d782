"""What one capture has written down so far: ledgers, module globals, side effects, thread state."""

"""What happens when a compiled callable is called: which entry fits, and what becomes of a call that none does."""

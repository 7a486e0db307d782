"""NumPy's functions and scalars."""

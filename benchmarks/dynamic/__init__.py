"""Sizes that change: how often each compiler compiles, what that costs, and what the compiled code does then."""

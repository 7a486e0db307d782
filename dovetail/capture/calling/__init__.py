"""Calls: of functions, classes, modules and callables that carry a mark."""

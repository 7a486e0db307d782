"""Cutting a program down to what still fails: `candidate` makes it smaller, `trial` runs it, `search` decides."""

"""Python's own rules: operators, attributes, subscripts, formatting."""

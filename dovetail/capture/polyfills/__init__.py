"""Python code that is traced in place of native code."""

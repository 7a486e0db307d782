"""Where results lie, and how much memory is alive."""

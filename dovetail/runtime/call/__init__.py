"""What one call runs: the host program, and what makes its results those that eager gives."""

"""What capture takes from the process that it runs in: code that it trusts, state that it guards, settings."""

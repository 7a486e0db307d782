"""What a user can see of a compilation: events, logs, dumps, times, explanations."""

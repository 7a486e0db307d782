"""Graph breaks: where to stop, what the residual does there, and how the rest goes on."""

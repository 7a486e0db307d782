"""The models that are measured: plain definitions with random weights, and nothing downloaded."""

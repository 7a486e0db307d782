"""Containers: from outside, under keys that vary, hashed and walked."""

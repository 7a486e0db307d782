"""Capture measured on whole models: transformers architectures from small configurations, and our own."""

"""What a CUDA device makes of it: whole models, and programs that only move memory."""

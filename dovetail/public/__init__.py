"""The public functions beside `compile`: what steers a compilation, looks into it, or marks tensors for it."""

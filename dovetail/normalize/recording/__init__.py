"""What happens to fake tensors, recorded as a functional graph."""

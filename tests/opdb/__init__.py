"""PyTorch's operator database against Dovetail: every entry, sample by sample, stage by stage."""

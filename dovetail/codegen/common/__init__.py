"""What code for every device begins with: ranges, arguments, names."""

"""What the second process pays that runs a program which another one has compiled."""

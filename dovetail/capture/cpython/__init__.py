"""Where Python itself is asked: what a native callable takes, and what is made of a special method's result."""

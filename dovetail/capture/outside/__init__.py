"""Objects from outside: how they become values, and what the entry relies on of them."""

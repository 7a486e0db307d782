"""Groups that walk the same memory, as one kernel."""

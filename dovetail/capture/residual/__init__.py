"""Values and effects as Python text: the residual code around the graph."""

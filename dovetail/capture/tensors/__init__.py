"""Tensors: operations as nodes of the graph, attributes, gradients, inputs."""

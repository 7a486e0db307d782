"""Random programs over views, in-place operations and gradients: `python -m tests.fuzz.aliasing --count 20000`.

    grammar    the tables that programs are made of: inputs, statements and what the caller does afterwards
    generate   a seed → the source text of a program
    observe    what can be seen of every tensor within reach: values, memory, versions, flags, gradients
    check      one program compiled and in eager: two calls, each followed by writes and backward passes outside
"""

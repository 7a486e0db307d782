"""Phase 2: run bytecode symbolically, without executing the user's code.

    driver          one call of a callable → graph, guards and residual code
    breaks.resume   what follows a graph break, in plain Python: needs nothing else of this folder
"""

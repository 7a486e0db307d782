"""Compilations that are kept: on disk for the next process, and in files of the user's.

    objects     the program's own objects: how another process finds them, and whether they are what they were
    operators   those of the program's own that are part of a compilation
    packing     a compilation as bytes, and back
    entry       what an entry is made of, packed, and put to work for another process's objects
    shelf       which compilation belongs to a call; the folder that keeps them
"""

"""Random Python programs, compiled and in eager: `python -m tests.fuzz.python --count 20000 --seed 0`.

    grammar    the tables that programs are made of: expressions and statements as templates, by kind of value
    library    the classes, functions and state that every program has at module level
    generate   a seed → the source text of a program
    observe    what a caller can see of a call, as plain data: results, changes, identities, output, errors
    check      one program compiled and in eager, call by call
    reduce     a failing program made small
"""

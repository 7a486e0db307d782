"""`python -m dovetail`: the command `dovetail`."""

from dovetail.commands import main

main(prog_name="dovetail")

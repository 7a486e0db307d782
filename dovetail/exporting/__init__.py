"""`dovetail.export`: a program as one graph that runs, and is kept, without the code that it was captured from."""

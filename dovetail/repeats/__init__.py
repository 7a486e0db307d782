"""Between capture and normalize, and after schedule: equal turns of a graph are compiled a few times, not each.

find     of a captured graph whose nodes come in turns, such as the layers of a model, one with few of them
seam     where the scheduled program of that graph may be cut
unfold   of that program, the one with all turns
graphs   of the functional graphs, what callers need: the inputs and results of all turns
"""

from dovetail.repeats.find import Short, find
from dovetail.repeats.rows import Irregular, Row
from dovetail.repeats.unfold import Unfolding

__all__ = ["Irregular", "Row", "Short", "Unfolding", "find"]

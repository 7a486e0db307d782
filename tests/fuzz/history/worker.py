"""One process of a comparison: compiles programs in an order of its own and writes the texts of their stages.

    python -m tests.fuzz.history.worker OUT SEED WAYS RANDOM IMAGES TRANSFORMERS
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

from tests.fuzz.history import shuffled

if __name__ == "__main__":
    out, seed, ways, random_ones, of_images, transformers = Path(sys.argv[1]), *map(int, sys.argv[2:])
    shuffled.install(seed, out.parent)
    # Only now: what is imported goes through sets in a random order.
    from tests.fuzz.history import programs, texts

    warnings.simplefilter("ignore")
    every = list(programs.pool(ways, random_ones, of_images, bool(transformers)))
    places = {program.name: k for k, program in enumerate(every)}
    found = {}
    for device in ("cpu", "cuda") if seed % 2 else ("cuda", "cpu"):
        for program in programs.shuffled(every, seed):
            found[f"{program.name} on {device}"] = texts.texts(program, places[program.name], device)
    out.write_text(json.dumps(found), encoding="utf-8")

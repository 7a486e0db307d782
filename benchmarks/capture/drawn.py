"""Models that nobody chose: architectures drawn at random out of the lists of transformers and timm.

The latter only where it is installed. The same number draws the same names from the same versions of the libraries.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
from dataclasses import dataclass
from typing import Any

import torch

from .small import build, inputs_for, small_config

LARGEST = 60_000_000  # parameters: larger ones take minutes on a CPU
PIXELS = 288
#: Heads in the order in which they are looked for: what most users of an architecture call.
HEADS = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "")


def draw(number: int) -> list[str]:
    """All names in an order that the number decides, those of each library in turn."""
    chance = random.Random(number)
    lists = [chance.sample(names, len(names)) for names in (_transformers(), _timm()) if names]
    longest = max(map(len, lists))
    return [names[i] for i in range(longest) for names in lists if i < len(names)]


def _transformers() -> list[str]:
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    return [f"hf:{name}" for name in sorted(auto.MODEL_MAPPING_NAMES)]


def _timm() -> list[str]:
    if importlib.util.find_spec("timm") is None:
        return []
    return [f"timm:{name}" for name in sorted(importlib.import_module("timm").list_models())]


@dataclass(frozen=True)
class Drawn:
    """`make()` gives a model in eval mode and its keyword inputs, or raises what kept it from being built."""

    name: str
    kind: str = "drawn"
    generates: bool = False
    device = "cpu"

    def make(self) -> tuple[torch.nn.Module, dict[str, Any]]:
        library, _, name = self.name.partition(":")
        torch.manual_seed(0)
        model, inputs = _of_timm(name) if library == "timm" else _of_transformers(name)
        if sum(p.numel() for p in model.parameters()) > LARGEST:
            raise ValueError(f"more than {LARGEST} parameters")
        return model, inputs


def _of_transformers(name: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    tables = (getattr(auto, f"MODEL_FOR_{head}_MAPPING_NAMES" if head else "MODEL_MAPPING_NAMES") for head in HEADS)
    found = next(table[name] for table in tables if name in table)
    cls = getattr(transformers, found if isinstance(found, str) else found[0])
    model = build(small_config(cls.config_class), cls)
    return model, inputs_for(model)


def _of_timm(name: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    timm = importlib.import_module("timm")
    settings = timm.models.get_pretrained_cfg(name)
    pixels = (settings.input_size if settings is not None else (3, 224, 224))[-1]
    if pixels > PIXELS:
        raise ValueError(f"images of {pixels} pixels")
    model = timm.create_model(name, num_classes=100).eval()
    return model, {"x": torch.randn(2, 3, pixels, pixels)}

"""Which models the capture benchmark builds: transformers architectures by configuration overrides, and our own.

`kind` groups the table. Decoders are causal language models with their cache on, as their users call them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .drawn import Drawn
from .small import build, inputs_for, small_config

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """`make()` gives a model in eval mode and its keyword inputs, the same in every process."""

    name: str
    kind: str
    overrides: Mapping[str, Any]
    device = "cpu"

    @property
    def generates(self) -> bool:
        return self.kind == "decoder"

    def make(self) -> tuple[torch.nn.Module, Inputs]:
        if self.kind == "own":
            return _own(self.name)
        transformers = importlib.import_module("transformers")  # seconds; only the workers pay
        transformers.logging.set_verbosity_error()
        cls = getattr(transformers, self.name)
        model = build(small_config(cls.config_class, self.overrides), cls)
        return model, inputs_for(model)


def _own(name: str) -> tuple[torch.nn.Module, Inputs]:
    registry = importlib.import_module("benchmarks.registry")
    model, inputs = registry.build(name)
    side = 128 if name == "vit" else 64  # small images: what is timed is capturing, not computing
    images = torch.nn.functional.interpolate(inputs[0][:2], size=(side, side))
    return model, {next(iter(inspect.signature(model.forward).parameters)): images}


#: transformers classes by kind; own models by their names in `benchmarks.registry`.
MODELS = {
    "encoder": """AlbertModel BertModel BigBirdModel CanineModel ConvBertModel DebertaModel DebertaV2Model
        DistilBertModel ElectraModel FNetModel FunnelModel LongformerModel MobileBertModel ModernBertModel MPNetModel
        NystromformerModel RobertaModel RoFormerModel SqueezeBertModel XLNetModel""",
    "decoder": """BloomForCausalLM CohereForCausalLM FalconForCausalLM GemmaForCausalLM Gemma2ForCausalLM
        Gemma3ForCausalLM GPT2LMHeadModel GPTNeoForCausalLM GPTNeoXForCausalLM GPTJForCausalLM JambaForCausalLM
        LlamaForCausalLM MambaForCausalLM Mamba2ForCausalLM MistralForCausalLM MixtralForCausalLM MptForCausalLM
        OlmoForCausalLM OPTForCausalLM PhiForCausalLM Phi3ForCausalLM Qwen2ForCausalLM Qwen2MoeForCausalLM
        Qwen3ForCausalLM RwkvForCausalLM StableLmForCausalLM""",
    "encoder-decoder": """BartModel BlenderbotModel LEDModel M2M100Model MarianModel MBartModel PegasusModel
        ProphetNetModel T5Model WhisperModel""",
    "vision": """BeitModel BlipModel CLIPModel ConvNextModel DeiTModel DetrModel Dinov2Model ResNetModel SamModel
        SegformerModel SiglipModel SwinModel ViTModel""",
    "audio": "HubertModel Wav2Vec2Model",
    "own": "densenet121 resnet50 unet vit",
}

_DETR = {
    "backbone_config": {"model_type": "resnet", "hidden_sizes": [16, 32], "depths": [1, 1], "embedding_size": 16,
                        "out_features": ["stage2"]},
}  # fmt: skip

_SAM = {"output_channels": 32, "window_size": 4, "global_attn_indexes": [1], "num_pos_feats": 16}

#: What small sizes alone would leave inconsistent.
OVERRIDES: dict[str, Mapping[str, Any]] = {
    "DetrModel": _DETR,
    "Gemma3ForCausalLM": {"layer_types": ["sliding_attention", "full_attention"]},
    "GPTNeoForCausalLM": {"attention_types": [[["global", "local"], 1]]},
    "JambaForCausalLM": {"attn_layer_offset": 1, "expert_layer_period": 2},
    "LongformerModel": {"attention_window": [4, 4]},
    "Mamba2ForCausalLM": {"num_heads": 8, "n_groups": 2, "chunk_size": 4},
    "SamModel": {"vision_config": _SAM},
    "SwinModel": {"window_size": 4, "depths": [1, 1], "num_heads": [2, 4]},
}

CASES = {name: Case(name, kind, OVERRIDES.get(name, {})) for kind, names in MODELS.items() for name in names.split()}




@dataclass(frozen=True)
class Placed:
    """A case whose model and inputs are on a device."""

    case: Case | Drawn
    device: str

    @property
    def kind(self) -> str:
        return self.case.kind

    @property
    def generates(self) -> bool:
        return self.case.generates

    def make(self) -> tuple[torch.nn.Module, Inputs]:
        model, inputs = self.case.make()
        return model.to(self.device), {name: tensor.to(self.device) for name, tensor in inputs.items()}


AnyCase = Case | Drawn | Placed


def case(name: str, device: str = "cpu") -> AnyCase:
    """The case of that name; one with a colon is an architecture of a library as it is."""
    found = Drawn(name) if ":" in name else CASES[name]
    return found if device == "cpu" else Placed(found, device)

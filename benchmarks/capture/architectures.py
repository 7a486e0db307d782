"""Which models the capture benchmark builds: transformers architectures by configuration overrides, and our own.

A case's name is the architecture; `kind` groups the table. Decoders are causal language models with their cache
on, as their users call them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .small import build, inputs_for, small_config

Inputs = dict[str, torch.Tensor]
Program = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """`make()` gives a model in eval mode and its keyword inputs, the same in every process."""

    name: str
    kind: str
    model: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    implementation: str = ""

    @property
    def generates(self) -> bool:
        return self.kind == "decoder"

    def make(self) -> tuple[torch.nn.Module, Inputs]:
        if self.kind == "own":
            return _own(self.model)
        transformers = importlib.import_module("transformers")  # seconds; only the workers pay
        transformers.logging.set_verbosity_error()
        cls = getattr(transformers, self.model)
        config = small_config(cls.config_class, self.overrides)
        if self.implementation:
            config._attn_implementation = self.implementation
        model = build(config, cls)
        return model, inputs_for(model)


def _own(name: str) -> tuple[torch.nn.Module, Inputs]:
    registry = importlib.import_module("benchmarks.registry")
    model, inputs = registry.build(name)
    side = 128 if name == "vit" else 64  # small images: what is timed is capturing, not computing
    images = torch.nn.functional.interpolate(inputs[0][:2], size=(side, side))
    return model, {next(iter(inspect.signature(model.forward).parameters)): images}


def _cases(kind: str, **models: Any) -> list[Case]:
    found = []
    for name, given in models.items():
        model, overrides = given if isinstance(given, tuple) else (given, {})
        found.append(Case(name, kind, model, overrides))
    return found


_DETR = {
    "backbone_config": {"model_type": "resnet", "hidden_sizes": [16, 32], "depths": [1, 1], "embedding_size": 16,
                        "out_features": ["stage2"]},
}  # fmt: skip

CASES: dict[str, Case] = {
    case.name: case
    for case in [
        *_cases(
            "encoder",
            albert="AlbertModel", bert="BertModel", big_bird="BigBirdModel", canine="CanineModel",
            convbert="ConvBertModel", deberta="DebertaModel", deberta_v2="DebertaV2Model",
            distilbert="DistilBertModel", electra="ElectraModel", fnet="FNetModel", funnel="FunnelModel",
            longformer=("LongformerModel", {"attention_window": [4, 4]}), mobilebert="MobileBertModel",
            modernbert="ModernBertModel", mpnet="MPNetModel", nystromformer="NystromformerModel",
            roberta="RobertaModel", roformer="RoFormerModel", squeezebert="SqueezeBertModel", xlnet="XLNetModel",
        ),
        *_cases(
            "decoder",
            bloom="BloomForCausalLM", cohere="CohereForCausalLM", falcon="FalconForCausalLM",
            gemma="GemmaForCausalLM", gemma2="Gemma2ForCausalLM", gemma3="Gemma3ForCausalLM",
            gpt2="GPT2LMHeadModel", gpt_neo=("GPTNeoForCausalLM", {"attention_types": [[["global", "local"], 1]]}), gpt_neox="GPTNeoXForCausalLM",
            gptj="GPTJForCausalLM", jamba=("JambaForCausalLM", {"attn_layer_offset": 1, "expert_layer_period": 2}),
             llama="LlamaForCausalLM", mamba="MambaForCausalLM",
            mamba2=("Mamba2ForCausalLM", {"num_heads": 8, "n_groups": 2, "chunk_size": 4}), mistral="MistralForCausalLM", mixtral="MixtralForCausalLM",
            mpt="MptForCausalLM", olmo="OlmoForCausalLM", opt="OPTForCausalLM", phi="PhiForCausalLM",
            phi3="Phi3ForCausalLM", qwen2="Qwen2ForCausalLM", qwen2_moe="Qwen2MoeForCausalLM",
            qwen3="Qwen3ForCausalLM", rwkv="RwkvForCausalLM", stablelm="StableLmForCausalLM",
        ),
        *_cases(
            "encoder-decoder",
            bart="BartModel", blenderbot="BlenderbotModel", led="LEDModel", m2m_100="M2M100Model",
            marian="MarianModel", mbart="MBartModel", pegasus="PegasusModel", prophetnet="ProphetNetModel",
            t5="T5Model", whisper="WhisperModel",
        ),
        *_cases(
            "vision",
            beit="BeitModel", blip="BlipModel", clip="CLIPModel", convnext="ConvNextModel", deit="DeiTModel",
            detr=("DetrModel", _DETR), dinov2="Dinov2Model", resnet="ResNetModel", sam=("SamModel", {"vision_config": {"output_channels": 32, "window_size": 4, "global_attn_indexes": [1],
                                       "num_pos_feats": 16}}), segformer="SegformerModel",
            siglip="SiglipModel", swin=("SwinModel", {"window_size": 4, "depths": [1, 1], "num_heads": [2, 4]}), vit="ViTModel",
        ),
        *_cases("audio", hubert="HubertModel", wav2vec2="Wav2Vec2Model"),
        *_cases("own", densenet121="densenet121", resnet50="resnet50", unet="unet", own_vit="vit"),
    ]
}  # fmt: skip


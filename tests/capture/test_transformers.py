"""Whole transformers models from small random configurations, as one graph, equal to eager."""

from __future__ import annotations

import pytest
import torch

from dovetail.capture.driver import capture
from tests.capture.harness import OPTIONS, enter

transformers = pytest.importorskip("transformers")

IDS = torch.arange(20).reshape(2, 10)
PIXELS = torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)
SMALL = {
    "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 1}
VISION = {k: v for k, v in SMALL.items() if k != "vocab_size"} | {"image_size": 32, "patch_size": 8}
SEQ2SEQ = {
    "vocab_size": 100, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
}  # fmt: skip

MODELS = {
    "GPT2Model": ({"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 2}, {"input_ids": IDS}),
    "LlamaForCausalLM": (GROUPED, {"input_ids": IDS}),
    "BertModel": (SMALL, {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}),
    "MistralForCausalLM": (GROUPED, {"input_ids": IDS}),
    "Qwen2ForCausalLM": (GROUPED, {"input_ids": IDS}),
    "GemmaForCausalLM": ({**GROUPED, "head_dim": 16}, {"input_ids": IDS}),
    "RobertaModel": (SMALL, {"input_ids": IDS}),
    "OPTForCausalLM": (
        {"vocab_size": 100, "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
         "word_embed_proj_dim": 32},
        {"input_ids": IDS},
    ),
    "DistilBertModel": (
        {"vocab_size": 100, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2}, {"input_ids": IDS}
    ),
    "T5Model": (
        {"vocab_size": 100, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2},
        {"input_ids": IDS, "decoder_input_ids": IDS},
    ),
    "BartModel": (SEQ2SEQ, {"input_ids": IDS}),
    "WhisperModel": (
        {**SEQ2SEQ, "max_source_positions": 50, "num_mel_bins": 8, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": 2, "decoder_start_token_id": 1},
        {"input_features": PIXELS.reshape(-1)[:1600].reshape(2, 8, 100), "decoder_input_ids": IDS},
    ),
    "ViTModel": (VISION, {"pixel_values": PIXELS}),
    "CLIPModel": (
        {"text_config": {**SMALL, "eos_token_id": 99}, "vision_config": VISION, "projection_dim": 16},
        {"input_ids": IDS, "pixel_values": PIXELS},
    ),
}  # fmt: skip
CORE = ("GPT2Model", "LlamaForCausalLM", "BertModel")
RUNS = [(name, "sdpa", {}) for name in MODELS]
RUNS += [(name, "eager", {}) for name in CORE]
RUNS += [(n, impl, {"use_cache": c}) for n in CORE[:2] for impl in ("eager", "sdpa") for c in (False, True)]


def make(name, implementation):
    torch.manual_seed(0)
    cls = getattr(transformers, name)
    config = cls.config_class(**MODELS[name][0], attn_implementation=implementation)
    return cls(config).eval()


def tensors(value):
    """Every tensor in a result, by path; caches are walked through their attributes."""
    if isinstance(value, torch.Tensor):
        return {"": value}
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (tuple, list)):
        items = enumerate(value)
    elif hasattr(value, "__dict__"):
        items = vars(value).items()
    else:
        return {}
    return {f"{key}.{path}": t for key, inner in items for path, t in tensors(inner).items()}


@pytest.mark.parametrize("name, implementation, extra", RUNS)
def test_model(name, implementation, extra):
    model = make(name, implementation)
    kwargs = {**MODELS[name][1], **extra}
    with torch.no_grad():
        captured = capture(model, (), kwargs, OPTIONS)
        actual, expected = enter(captured, model, (), kwargs), model(**kwargs)
    assert type(actual) is type(expected) and list(actual) == list(expected)
    ours, theirs = tensors(actual), tensors(expected)
    assert list(ours) == list(theirs) and len(ours) >= 1
    for path, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[path], rtol=0, atol=0)

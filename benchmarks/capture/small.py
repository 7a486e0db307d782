"""Small configurations of transformers architectures, found by the names of their fields, and inputs to go with them.

Nothing is downloaded: the weights are random. Widths, depths, vocabularies and images shrink; what
makes the architecture (which layers, which attention, which activation) stays.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

BATCH, LENGTH, VOCABULARY, IMAGE = 2, 12, 128, 64

_WIDTH, _WIDE, _HEADS, _LAYERS = 32, 64, 4, 2

#: Field names by the size that they get.
_NAMES = {
    _WIDTH: """hidden_size d_model n_embd embed_dim embedding_size dim hidden_dim emb_dim projection_dim
        attention_hidden_size word_embed_proj_dim projector_hidden_size out_hidden_size output_hidden_size
        pooler_hidden_size pooler_output_size encoder_hidden_size decoder_hidden_size decoder_hidden_dim
        encoder_hidden_dim text_hidden_size vision_hidden_size fusion_hidden_size neck_hidden_dim classifier_proj_size
        lru_width entity_emb_size backbone_hidden_size d_latents q_dim kv_dim image_text_hidden_size output_dim
        fpn_hidden_size downsample_hidden_size decoder_embed_dim conv_hidden_size bottleneck_size
        true_hidden_size intra_bottleneck_size prediction_hidden_dim""",
    _WIDE: """intermediate_size encoder_ffn_dim decoder_ffn_dim d_ff ffn_dim mlp_dim n_inner d_inner
        moe_intermediate_size shared_expert_intermediate_size ffn_hidden_size decoder_intermediate_size
        encoder_intermediate_size shared_intermediate_size vocab_size_per_layer_input feed_forward_size
        dim_feedforward block_ff_dim""",
    _HEADS: """num_attention_heads encoder_attention_heads decoder_attention_heads num_heads n_head n_heads
        encoder_num_attention_heads decoder_num_attention_heads attention_heads
        num_self_attention_heads num_cross_attention_heads num_local_experts num_experts n_routed_experts
        moe_num_experts num_query_tokens num_labels""",
    2: """num_hidden_layers encoder_layers decoder_layers num_layers n_layer n_layers num_decoder_layers
        num_encoder_layers depth encoder_num_hidden_layers decoder_num_hidden_layers num_key_value_heads
        encoder_num_key_value_heads decoder_num_key_value_heads num_experts_per_tok moe_topk num_block_repeats
        num_stage_layers num_self_attends_per_block num_experts_per_token attn_layer_period l_layers x_layers r_layers
        moe_k text_layers num_kv_heads multi_query_kv topk_group n_group decoder_num_layers""",
    8: """head_dim d_kv d_head v_head_dim qk_nope_head_dim qk_rope_head_dim kv_channels linear_key_head_dim
        linear_value_head_dim mamba_d_head attention_head_size dim_head rotary_dim index_head_dim""",
    16: """kv_lora_rank q_lora_rank qk_head_dim state_size mamba_d_state time_step_rank num_queries
        num_mel_bins""",
    64: """max_position_embeddings n_positions max_source_positions max_target_positions n_ctx sliding_window
        max_seq_len max_sequence_length max_2d_position_embeddings""",
    IMAGE: "image_size",
    8 + 0.5: "patch_size",
    VOCABULARY: "vocab_size vocab_size_or_config_json_file",
}  # fmt: skip
SIZES = {name: int(size) for size, names in _NAMES.items() for name in names.split()}
LISTS = {"depths": 1, "num_attention_heads": 2, "num_heads": 2}
WIDTH_LISTS = ("hidden_sizes", "embed_dims", "neck_hidden_sizes", "encoder_hidden_sizes", "decoder_hidden_sizes",
               "conv_dim", "embed_dim", "dims")  # fmt: skip


def small_config(cls: type, overrides: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """An instance of a configuration class with few and small layers; `overrides` win, nested by sub-configuration."""
    usual = cls()
    chosen: dict[str, Any] = {}
    for name in getattr(cls, "sub_configs", {}):
        inner = getattr(usual, name, None)
        if inner is not None and name not in overrides:
            chosen[name] = small_config(type(inner))
    values = {k: v for k, v in vars(usual).items() if not k.startswith("_")}
    for name, value in values.items():
        found = _smaller(name, value, values)
        if found is not None:
            chosen[name] = found
    for name, value in overrides.items():
        inner = getattr(usual, name, None)
        nest = isinstance(value, Mapping) and "model_type" not in value and hasattr(inner, "to_dict")
        chosen[name] = small_config(type(inner), value) if nest else value
    return cls(**chosen)


def _smaller(name: str, value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        if name.endswith(("_token_id", "_token_index", "_index")) and value >= VOCABULARY:
            return VOCABULARY - 1 - sum(map(ord, name)) % 16
        if name == "num_key_value_heads" and value == values.get("num_attention_heads"):
            return min(value, _HEADS)
        limit = SIZES.get(name)
        return min(value, limit) if limit is not None else None
    if isinstance(value, (list, tuple)) and value and all(type(v) is int for v in value):
        return _smaller_list(name, value)
    return None


def _smaller_list(name: str, value: Any) -> Any:
    kind = type(value)
    if name in LISTS:
        return kind(min(v, LISTS[name]) for v in value)
    if name in WIDTH_LISTS:
        smallest = min(value)
        return kind(max(8, 16 * v // smallest) if v != smallest else 16 for v in value)
    return None


def inputs_for(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Tensors for the forward parameters that the model cannot do without, by their names."""
    config, generator = model.config, torch.Generator().manual_seed(0)
    accepted = inspect.signature(model.forward).parameters
    given: dict[str, torch.Tensor] = {}
    wanted = [getattr(model, "main_input_name", "input_ids")]
    if config.is_encoder_decoder and "decoder_input_ids" in accepted:
        wanted.append("decoder_input_ids")
    if "input_ids" in accepted and "pixel_values" in accepted:
        wanted += ["input_ids", "pixel_values"]
    wanted += [n for n, p in accepted.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    for name in dict.fromkeys(wanted):
        maker = MAKERS.get(name)
        if maker is not None and (name in accepted or name == wanted[0]):
            given[name] = maker(config, generator)
    return given


def _find(config: Any, *names: str, default: int) -> int:
    """The first of the fields that the configuration or one of its parts has."""
    parts = [config, *(getattr(config, n, None) for n in getattr(type(config), "sub_configs", {}))]
    for part in parts:
        for name in names:
            found = getattr(part, name, None)
            if isinstance(found, int) and not isinstance(found, bool):
                return found
            if isinstance(found, (list, tuple)) and found and isinstance(found[0], int):
                return found[0]
    return default


def _ids(config: Any, generator: torch.Generator) -> torch.Tensor:
    top = _find(config, "vocab_size", default=VOCABULARY)
    return torch.randint(3, max(4, min(top, VOCABULARY - 20)), (BATCH, LENGTH), generator=generator)


def _pixels(config: Any, generator: torch.Generator) -> torch.Tensor:
    size = _find(config, "image_size", default=IMAGE)
    return torch.randn(BATCH, _find(config, "num_channels", default=3), size, size, generator=generator)


def _video(config: Any, generator: torch.Generator) -> torch.Tensor:
    size, frames = _find(config, "image_size", default=IMAGE), _find(config, "num_frames", default=8)
    return torch.randn(BATCH, frames, _find(config, "num_channels", default=3), size, size, generator=generator)


def _features(config: Any, generator: torch.Generator) -> torch.Tensor:
    bins = _find(config, "num_mel_bins", "feature_size", default=80)
    length = 2 * _find(config, "max_source_positions", default=50)
    return torch.randn(BATCH, bins, length, generator=generator)


MAKERS = {
    "input_ids": _ids,
    "decoder_input_ids": _ids,
    "pixel_values": _pixels,
    "pixel_values_videos": _video,
    "input_features": _features,
    "input_values": lambda config, generator: torch.randn(BATCH, 4000, generator=generator),
    "attention_mask": lambda config, generator: torch.ones(BATCH, LENGTH, dtype=torch.long),
    "bbox": lambda config, generator: torch.randint(0, 8, (BATCH, LENGTH, 1), generator=generator).repeat(1, 1, 4),
}


def build(config: Any, cls: type) -> torch.nn.Module:
    torch.manual_seed(0)
    return cls(config).eval()

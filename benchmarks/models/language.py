"""Transformers of the three common styles, from configurations with random weights."""

from __future__ import annotations

import transformers
from torch import nn


def gpt2(
    layers: int = 6, width: int = 256, heads: int = 4, vocabulary: int = 5000, positions: int = 256
) -> nn.Module:
    """Decoder with learned positions, layer norm and GELU."""
    config = transformers.GPT2Config(
        n_layer=layers,
        n_embd=width,
        n_head=heads,
        vocab_size=vocabulary,
        n_positions=positions,
        bos_token_id=0,
        eos_token_id=1,
        use_cache=False,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return transformers.GPT2LMHeadModel(config)


def llama(layers: int = 4, width: int = 256, heads: int = 8, vocabulary: int = 5000) -> nn.Module:
    """Decoder with rotary positions, RMS norm, gated SiLU and grouped key-value heads."""
    config = transformers.LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=11 * width // 4,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        vocab_size=vocabulary,
        max_position_embeddings=256,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


def bert(layers: int = 4, width: int = 256, heads: int = 4, vocabulary: int = 5000) -> nn.Module:
    """Encoder with post-norm, GELU and a padding mask."""
    config = transformers.BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=4 * width,
        num_attention_heads=heads,
        vocab_size=vocabulary,
        max_position_embeddings=256,
    )
    return transformers.BertModel(config)

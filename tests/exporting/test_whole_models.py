"""Whole transformers models from small random configurations: exported, kept, and run at other sizes as in eager."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.errors import InvalidArgument
from tests.forks import python

from .checking import assert_same

transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip
GPT2 = {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 2, "use_cache": False}
T5 = {"vocab_size": 100, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
VIT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32}
LLAMA = {**SMALL, "num_key_value_heads": 1, "use_cache": False}


def texts(batch, length):
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, length - 1 :] = 0
    return {"input_ids": torch.randint(3, 99, (batch, length)), "attention_mask": mask}


def images(batch, _):
    return {"pixel_values": torch.randn(batch, 3, 32, 32)}


TEXTS = {name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask")}
MODELS = {
    "BertForMaskedLM": (SMALL, texts, TEXTS), "GPT2LMHeadModel": (GPT2, texts, TEXTS),
    "T5EncoderModel": (T5, texts, TEXTS), "LlamaForCausalLM": (LLAMA, texts, TEXTS),
    "ViTModel": (VIT | {"patch_size": 8}, images, {"pixel_values": {0: "batch"}}),
}  # fmt: skip
SIZES = [(3, 7), (1, 7), (2, 12), (5, 2)]


def make(name):
    torch.manual_seed(0)
    cls = getattr(transformers, name)
    return cls(cls.config_class(**MODELS[name][0])).eval()


@pytest.mark.parametrize("name", MODELS)
def test_models_with_sizes_that_vary(name, tmp_path):
    model, (_, given, shapes) = make(name), MODELS[name]
    program = dovetail.export(model, (), given(*SIZES[0]), shapes)
    assert [low for low, _ in program.ranges.values()] == [1, 2][: len(program.ranges)]
    program.save(tmp_path / "p")
    module = dovetail.ExportedProgram.load(tmp_path / "p").module()
    assert [*module.state_dict()] == [*model.state_dict()]
    for sizes in SIZES:
        kwargs = given(*sizes)
        with torch.no_grad():
            assert_same(module(**kwargs), model(**kwargs), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["BertForMaskedLM", "LlamaForCausalLM"])
def test_models_are_converted(name):
    model, (_, given, shapes) = make(name), MODELS[name]
    module = dovetail.export(model, (), given(*SIZES[0]), shapes).to_torch().module()
    kwargs = given(2, 11)
    with torch.no_grad():
        assert_same(module(**kwargs), model(**kwargs), atol=1e-5, rtol=1e-4)


def test_models_are_trained():
    model, other = make("LlamaForCausalLM"), make("LlamaForCausalLM")
    kwargs = texts(2, 9)
    module = dovetail.export(model, (), kwargs | {"labels": kwargs["input_ids"]}).module()
    for each in (module, other):
        optimizer = torch.optim.AdamW(each.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            each(**kwargs, labels=kwargs["input_ids"]).loss.backward()
            optimizer.step()
    assert_same([*module.parameters()], [*other.parameters()], atol=1e-4, rtol=1e-3)


def test_a_length_that_the_model_was_not_made_for():
    module = dovetail.export(make("BertForMaskedLM"), (), texts(3, 7), TEXTS).module()
    with pytest.raises(InvalidArgument, match=r"input_ids.shape\[1\] \(length\) is 513; .* between 2 and 512"):
        module(**texts(1, 513))


WITHOUT_TRANSFORMERS = """
import sys, torch, dovetail
module = dovetail.ExportedProgram.load(sys.argv[1]).module()
ids, expected = torch.load(sys.argv[2])
assert torch.allclose(module(input_ids=ids), expected, atol=1e-5)
assert not [m for m in sys.modules if m.startswith(("transformers", "torch._dynamo", "sympy"))]
"""


def test_a_process_without_transformers(tmp_path):
    model, ids = make("T5EncoderModel"), texts(2, 5)["input_ids"]

    def encode(input_ids):
        return model(input_ids).last_hidden_state

    dovetail.export(encode, (), {"input_ids": ids}).save(tmp_path / "p")
    torch.save((ids, encode(ids).detach()), tmp_path / "data")
    done = python("-c", WITHOUT_TRANSFORMERS, str(tmp_path / "p"), str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr[-2000:]

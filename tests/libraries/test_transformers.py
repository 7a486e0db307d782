"""transformers, which calls `torch.compile` itself: the trainer, and text that is generated with a static cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import dovetail

from .compiling import anew, compilations  # noqa: F401

transformers = pytest.importorskip("transformers")


def small_llama() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, k: int) -> dict[str, torch.Tensor]:
        ids = (torch.arange(12) * (k + 3)) % 63 + 1
        return {"input_ids": ids, "labels": ids}


def trainer(folder: Path, **more: Any) -> Any:
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=4, per_device_train_batch_size=4, learning_rate=1e-2, logging_steps=1,
        report_to=[], save_strategy="no", use_cpu=True, seed=0, disable_tqdm=True, **more,
    )  # fmt: skip
    return transformers.Trainer(small_llama(), arguments, train_dataset=Rows(), eval_dataset=Rows())


def trained(folder: Path, **more: Any) -> tuple[list[float], dict[str, torch.Tensor]]:
    made = trainer(folder, **more)
    made.train()
    return [row["loss"] for row in made.state.log_history if "loss" in row], made.model.state_dict()


@pytest.mark.parametrize("more", [{}, {"gradient_checkpointing": True}, {"bf16": True}], ids=str)
def test_training(tmp_path: Path, more: dict[str, Any]) -> None:
    expected = trained(tmp_path / "eager", **more)
    with dovetail.install():
        found = trained(tmp_path / "compiled", torch_compile=True, **more)
    assert len(compilations()) == 1
    if "bf16" in more:  # Adam makes whole steps of gradients that round to either side of zero
        torch.testing.assert_close(found[0], expected[0], rtol=1e-2, atol=1e-2)
    else:
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_evaluation(tmp_path: Path) -> None:
    expected = trainer(tmp_path / "eager").evaluate()
    with dovetail.install():
        found = trainer(tmp_path / "compiled", torch_compile=True, torch_compile_mode="reduce-overhead").evaluate()
    assert len(compilations()) == 1
    torch.testing.assert_close(torch.tensor(found["eval_loss"]), torch.tensor(expected["eval_loss"]))  # of float32


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_generate(kind: str) -> None:
    model = small_llama().eval()
    ids = torch.arange(1, 9).reshape(2, 4)
    given = dict(max_new_tokens=8, do_sample=False, cache_implementation=kind, use_cache=True)
    expected = model.generate(ids, **given)
    with dovetail.install():
        if kind == "static":
            config = transformers.CompileConfig()
            config._compile_all_devices = True
            given["compile_config"] = config
        else:
            model.forward = torch.compile(model.forward)
        found = model.generate(ids, **given)
    assert torch.equal(found, expected)
    assert len(compilations()) >= 1

"""diffusers: pipelines with random weights whose denoising model is compiled, as its documents do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dovetail

from .compiling import anew, compilations  # noqa: F401

diffusers = pytest.importorskip("diffusers")


def unet() -> Any:
    torch.manual_seed(0)
    return diffusers.UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32),
        norm_num_groups=8, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ).eval()  # fmt: skip


def images(pipeline: Any, **more: Any) -> torch.Tensor:
    pipeline.set_progress_bar_config(disable=True)
    made = pipeline(batch_size=2, generator=torch.Generator().manual_seed(1), output_type="np", **more)
    return torch.from_numpy(made.images)


@pytest.mark.parametrize("how", ["whole", "in place", "forward"])
@pytest.mark.parametrize("pipeline", ["DDPMPipeline", "DDIMPipeline"])
def test_pipelines(pipeline: str, how: str) -> None:
    scheduler = getattr(diffusers, pipeline.replace("Pipeline", "Scheduler"))(num_train_timesteps=20)
    made = getattr(diffusers, pipeline)(unet=unet(), scheduler=scheduler)
    expected = images(made, num_inference_steps=3)
    with dovetail.install():
        if how == "whole":
            made.unet = torch.compile(made.unet, mode="reduce-overhead", fullgraph=True)
        elif how == "in place":
            made.unet.compile(fullgraph=True)
        else:
            made.unet.forward = torch.compile(made.unet.forward, mode="max-autotune", fullgraph=True)
        found = images(made, num_inference_steps=3)
    assert len(compilations()) in (1, 2)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_a_conditional_model_in_training() -> None:
    torch.manual_seed(0)
    model = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=8, attention_head_dim=4,
    )  # fmt: skip
    args = torch.randn(2, 4, 8, 8), torch.tensor([3, 7]), torch.randn(2, 5, 8)

    def gradients(run: Any) -> list[torch.Tensor]:
        result = run(*args).sample
        return [result, *torch.autograd.grad(result.square().mean(), list(model.parameters()), allow_unused=True)]

    expected = gradients(model)
    with dovetail.install():
        found = gradients(torch.compile(model, fullgraph=True))
    assert len(compilations()) == 1
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_repeated_blocks() -> None:
    torch.manual_seed(0)
    model = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=2, num_single_layers=2, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
    ).eval()  # fmt: skip
    given = dict(
        hidden_states=torch.randn(1, 16, 4), encoder_hidden_states=torch.randn(1, 8, 32),
        pooled_projections=torch.randn(1, 32), timestep=torch.tensor([1.0]), img_ids=torch.randn(16, 3),
        txt_ids=torch.randn(8, 3),
    )  # fmt: skip
    with torch.no_grad():
        expected = model(**given).sample
        with dovetail.install():
            model.compile_repeated_blocks(fullgraph=True)
            found = model(**given).sample
    assert len(compilations()) == 4
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

"""Lightning: modules that its trainers are given compiled, and Fabric, which compiles again what it sets up."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dovetail

from .compiling import anew, compilations  # noqa: F401

lightning = pytest.importorskip("lightning")


def module(logs: bool) -> Any:
    class Steps(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
            self.losses: list[float] = []

        def training_step(self, batch, index):
            x, y = batch
            loss = torch.nn.functional.cross_entropy(self.net(x), y)
            if logs:
                self.log("loss", loss)
            return loss

        def validation_step(self, batch, index):
            x, y = batch
            return torch.nn.functional.cross_entropy(self.net(x), y)

        def predict_step(self, batch, index):
            return self.net(batch[0])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    torch.manual_seed(0)
    return Steps()


def loader() -> Any:
    torch.manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(16, 8), torch.randint(0, 2, (16,)))
    return torch.utils.data.DataLoader(data, batch_size=4)


def trainer(**more: Any) -> Any:
    return lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, **more,
    )  # fmt: skip


def fitted(compiled: Any, logs: bool = False) -> tuple[dict[str, torch.Tensor], Any]:
    model, made = module(logs), trainer()
    given = compiled(model)
    made.fit(given, loader(), loader())
    return model.state_dict(), made.predict(given, loader())


@pytest.mark.parametrize("logs", [False, True])
@pytest.mark.filterwarnings("ignore::Warning")
def test_the_trainer(logs: bool) -> None:
    expected = fitted(lambda model: model, logs)
    with dovetail.install():
        found = fitted(torch.compile, logs)
    steps = {"training_step", "validation_step", "predict_step"}
    assert steps <= {r.function.split(".")[-1] for r in compilations(breaks=int(logs))}  # what logs is not compiled
    torch.testing.assert_close(found, expected)


class ByHand(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(8, 2)
        self.automatic_optimization = False

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))
        optimizer.step()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore::Warning")
def test_steps_that_optimize_by_hand() -> None:
    def trained(compiled: Any) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = ByHand()
        trainer().fit(compiled(model), loader())
        return model.state_dict()

    expected = trained(lambda model: model)
    with dovetail.install():
        found = trained(torch.compile)
    compilations(breaks=1)  # Lightning's optimizer refers to its strategy weakly, by a proxy
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore::Warning")
def test_fabric() -> None:
    def trained(compiled: Any) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        fabric = lightning.Fabric(accelerator="cpu", devices=1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
        run, optimizer = fabric.setup(compiled(model), torch.optim.AdamW(model.parameters(), lr=1e-2))
        for x, y in fabric.setup_dataloaders(loader()):
            fabric.backward(torch.nn.functional.cross_entropy(run(x), y))
            optimizer.step()
            optimizer.zero_grad()
        return run.state_dict()

    expected = trained(lambda model: model)
    with dovetail.install():
        found = trained(torch.compile)
    assert len(compilations()) == 1
    torch.testing.assert_close(found, expected)

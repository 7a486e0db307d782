"""What compilations depend on of devices is told without using one that is not in use."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.kept import files, shelf


@pytest.fixture
def unused(monkeypatch):
    """Two devices that nobody has used yet."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", lambda: pytest.fail("a device is used"))
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: pytest.fail("a device is used"))


def test_a_program_on_the_cpu_uses_no_other_device(unused, tmp_path, monkeypatch):
    monkeypatch.setattr(dovetail.config, "warm_start", True)
    assert shelf.devices() == ("2 that are not in use",)
    compiled, x = dovetail.compile(torch.nn.Tanh()), torch.ones(3)
    compiled(x)
    dovetail.save(compiled, tmp_path / "p")
    assert files.read(tmp_path / "p").differs == ""


def test_names_tell_devices_in_use_apart(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    machines = []
    for name in ("one", "another", "one"):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda k, name=name: name)
        machines.append(shelf.machine(shelf.devices()))
    assert machines[0] == machines[2] != machines[1]

"""The processor as a device that is good at something else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dovetail.ir.devices import HOST, TRAITS


def give_host(monkeypatch: pytest.MonkeyPatch, **traits: bool) -> None:
    monkeypatch.setitem(TRAITS, HOST.type, replace(TRAITS[HOST.type], **traits))

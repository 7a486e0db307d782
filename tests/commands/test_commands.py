"""The command `dovetail`, as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

import dovetail
from dovetail.commands import COMMANDS, main
from dovetail.diagnostics import logs
from dovetail.errors.codes import CODES


def typed(*words: str, answer: str = "") -> Result:
    return CliRunner().invoke(main, words, input=answer)


def test_every_command_is_listed_and_has_help() -> None:
    listed = typed("--help").output
    for name in COMMANDS:
        assert f"\n  {name} " in listed
        shown = typed(name, "--help")
        assert shown.exit_code == 0 and "Usage: " in shown.output


def test_help_on_codes() -> None:
    assert CODES["opaque-call"].remedy in typed("help", "[opaque-call]").output
    assert all(code in typed("help").output for code in CODES)
    wrong = typed("help", "opaque")
    assert wrong.exit_code == 2 and "no code 'opaque'; did you mean opaque-call" in wrong.output


def test_logs_lists_every_log() -> None:
    assert all(name in typed("logs").output for name in logs.NAMES)


def test_env_names_versions_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_LOGS", "")
    with dovetail.config.patch(recompile_limit=3):
        shown = typed("env").output
    assert torch.__version__ in shown and "recompile_limit=3" in shown and "DOVETAIL_LOGS" in shown


def test_the_cache_is_counted_and_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / "abcd").write_bytes(bytes(2**20))
    (tmp_path / "notes.txt").write_text("the user's own")
    assert "files   1, 1.0 MiB" in typed("cache", "info").output
    assert typed("cache", "clear", answer="n\n").exit_code == 1 and (tmp_path / "ab" / "abcd").exists()
    assert "deleted 1 files" in typed("cache", "clear", "--yes").output
    assert (tmp_path / "notes.txt").exists() and not (tmp_path / "ab" / "abcd").exists()
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", "")
    assert "nothing is kept" in typed("cache", "info").output

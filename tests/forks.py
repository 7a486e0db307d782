"""Python programs in processes of their own, which begin in milliseconds: as forks of one that has imported PyTorch.

    done = python("-c", "print(input())", given="text")

What PyTorch reads from the environment while it is imported is that of the process that runs the tests, and modules are
not taken apart at the end. A program that is about that, or about the interpreter's own options, needs `subprocess`.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: What `torch.compile` with a backend of PyTorch's imports.
WITH_PYTORCHS_COMPILER = ("torch", "torch._dynamo", "torch._inductor.compile_fx")
#: Where programs look for modules: here first, then where this process does.
PLACES = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
_FILES = {"stdin": os.O_RDONLY, "stdout": os.O_WRONLY, "stderr": os.O_WRONLY}


def python(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | str = ROOT, given: str = "", timeout: int = 300,
    imported: tuple[str, ...] = ("torch",),
) -> subprocess.CompletedProcess[str]:
    """Runs `python *words`, the first of which is `-c`, `-m` or a file. `imported`: what it finds imported."""
    env = {**os.environ, "PYTHONPATH": PLACES} if env is None else dict(env)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in _FILES]
        for file, text in zip(files, (given, "", "")):
            file.write_text(text)
        request = {"words": words, "env": env, "cwd": str(cwd), "files": [*map(str, files)], "timeout": timeout}
        code = _Parent.of(imported).ask(request)
        return subprocess.CompletedProcess([*words], code, *(file.read_text() for file in files[1:]))


def parent(imported: tuple[str, ...] = ("torch",)) -> int:
    """The number of the process that `python` forks."""
    return _Parent.of(imported).process.pid


class _Parent:
    """The process that is forked."""

    def __init__(self, imported: tuple[str, ...]) -> None:
        pipe, env = subprocess.PIPE, {**os.environ, "PYTHONPATH": PLACES}
        command = [sys.executable, __file__, *imported]
        self.process = subprocess.Popen(command, env=env, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        atexit.register(self.process.communicate)

    @classmethod
    @functools.cache
    def of(cls, imported: tuple[str, ...]) -> _Parent:
        return cls(imported)

    def ask(self, request: dict[str, Any]) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


# ---------------------------------------------------------------- in the process that is forked


def _next_request() -> dict[str, Any]:
    """Returns in forks only."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            made: dict[str, Any] = json.loads(line)
            return made
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.exit()


def _become(request: dict[str, Any], path: list[str]) -> None:
    signal.alarm(request["timeout"])
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for number, (flags, file) in enumerate(zip(_FILES.values(), request["files"], strict=True)):
        os.dup2(os.open(file, flags | os.O_APPEND), number)
    sys.stdin = open(0, closefd=False)
    added = os.environ.get("PYTHONPATH", "")
    sys.path[:] = ["", *(added.split(os.pathsep) if added else ()), *path]


def run(first: str, *words: str) -> None:
    """What `python first *words` runs, in this process."""
    sys.argv = [first, *words]
    if first == "-m":
        sys.argv = sys.argv[1:]
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-c":
        text, place, sys.argv = words[0], "<string>", ["-c", *words[1:]]
    else:
        text, place, sys.path[0] = Path(first).read_text(), first, str(Path(first).parent)
        main.__file__ = first
    exec(compile(text, place, "exec"), main.__dict__)


def _links(link: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while link is not None:
        yield link
        link = link.tb_next


def _main(imported: list[str]) -> None:
    path = [entry for entry in sys.path[1:] if entry != str(ROOT)]
    for name in imported:
        importlib.import_module(name)
    background = runpy.run_path(str(ROOT / "tests" / "background.py"))  # programs find no module of the tests
    background["quick_seeds"]()
    background["seldom_collections"]()
    request = _next_request()
    _become(request, path)
    code: Any = 0
    try:
        run(*request["words"])
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except Exception as error:
        own = next((t for t in _links(error.__traceback__) if t.tb_frame.f_code.co_filename != __file__), None)
        sys.last_value = error
        sys.excepthook(type(error), error.with_traceback(own), own)
        code = 1
    _end(code if isinstance(code, int) else int(code is not None))


def _end(code: int) -> None:
    """Without taking all that was imported apart, which takes longer than most programs."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _main(sys.argv[1:])

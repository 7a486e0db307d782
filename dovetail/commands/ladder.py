"""The runs of `dovetail doctor`: one program in several ways, each in processes of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import IO, Any

import torch

from dovetail.commands import recorded, rung
from dovetail.diagnostics import trace
from dovetail.ir.records import dataclass

STARTUP = Path(__file__).parent / "startup"
GRACE = 10.0  # seconds for what is asked to end
LAST = 6  # lines of what a program has printed that are shown when it fails


@dataclass(frozen=True)
class Variant:
    """`compile`: the arguments that take the place of the program's. `stage`: what this run adds to those before."""

    name: str
    compile: Mapping[str, Any]
    stage: str = ""
    exact: bool = False  # is each call computed in float64 as well?
    settings: Mapping[str, str] = field(default_factory=dict)  # environment variables


EAGER = Variant("eager", {"disable": True})
AGAIN = Variant("eager again", {"disable": True}, exact=True)
WRITTEN = Variant("as written", {}, "the default backend, in fusion or generated code")
#: The documents' order: what one run adds to those before is what is to blame if it is the first that is wrong.
LADDER = (
    Variant("backend='eager'", {"backend": "eager"}, "capture"),
    Variant("backend='aot_eager'", {"backend": "aot_eager"}, "the graphs of PyTorch's operators and their gradients"),
    WRITTEN,
    Variant("dynamic=True", {"dynamic": True}, "sizes that may change"),
    Variant("dynamic=False", {"dynamic": False}, "sizes as constants"),
)
DECOMPOSED = Variant(
    "decomp_partition", {"backend": "aot_eager_decomp_partition"},
    "taking operators apart, and what is saved for the backward pass",
)  # fmt: skip
#: Settings that may make a wrong run right: their names in the environment, and what that means.
SETTINGS = {
    "fallback_random=True": (
        "DOVETAIL_FALLBACK_RANDOM", "1", "Only random numbers are others, of the same distribution.",
    ),
    "numerics='eager'": (
        "DOVETAIL_NUMERICS", "eager",
        "It is right with config.numerics = 'eager', which rounds where eager mode does and leaves more to PyTorch.",
    ),
    "cudagraphs=False": ("DOVETAIL_CUDAGRAPHS", "0", "It is right with config.cudagraphs = False."),
    "check_kernels=True": ("DOVETAIL_CHECK_KERNELS", "1", "It is right where kernels check their accesses."),
}  # fmt: skip
RANDOM, GRAPHS, CHECKED = (next(n for n in SETTINGS if n.startswith(s)) for s in ("fallback", "cudagraphs", "check"))
ASKED = "GraphBreakError"  # how the failure begins that fullgraph=True asks for


@dataclass
class Noted:
    """What one process has noted down; see `rung.Recorder.told`."""

    rank: str = "main"
    calls: list[dict[str, Any]] = field(default_factory=list)
    alone: list[list[dict[str, Any]]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    gradients: list[torch.Tensor] = field(default_factory=list)
    state: list[torch.Tensor] = field(default_factory=list)
    failure: str = ""
    memory: float = 0.0
    on_gpu: bool = False
    by_pytorch: list[str] = field(default_factory=list)


@dataclass
class Run:
    """One run: the processes whose calls can be compared with another run's, and what was recorded of all."""

    noted: list[Noted] = field(default_factory=lambda: [Noted()])
    code: int = 0
    failure: str = ""
    printed: list[str] = field(default_factory=list)  # the last lines of its standard error
    traced: list[recorded.Process] = field(default_factory=list)
    folder: Path | None = None  # of the trace
    elsewhere: bool = False  # do processes that the program starts call something that is compiled?

    @property
    def first(self) -> Noted:
        """The process whose times are shown: the first rank, or the program itself."""
        return self.noted[0]

    @property
    def compilations(self) -> list[recorded.RecordedCompilation]:
        """Those of the first rank; without ranks, of all processes."""
        ranks = [rank for p in self.traced if (rank := p.about.get("rank")) is not None]
        shown = [p for p in self.traced if not ranks or p.about.get("rank") == min(ranks)]
        return [c for process in shown for c in process.compilations.values()]

    def alone(self) -> Run:
        """The same with the calls of modules that nothing compiles in the place of those of what is compiled."""
        noted = []
        for one in self.noted:
            calls = sorted((call for calls in one.alone for call in calls), key=lambda call: call["began"])
            noted.append(Noted(**{**vars(one), "calls": calls, "alone": []}))
        return Run(**{**vars(self), "noted": noted})


class Answers:
    """What programs read from the standard input: the first run gets it as it comes, later ones the same."""

    def __init__(self) -> None:
        self._read: bytearray | None = None

    def give(self, to: IO[bytes]) -> None:
        first, self._read = self._read is None, self._read if self._read is not None else bytearray()
        threading.Thread(target=self._pass_on if first else self._repeat, args=(to,), daemon=True).start()

    def _pass_on(self, to: IO[bytes]) -> None:
        with contextlib.suppress(OSError), to:
            while not os.isatty(0) and (some := os.read(0, 1 << 16)):
                self._read += some  # type: ignore[operator]
                to.write(some)
                to.flush()

    def _repeat(self, to: IO[bytes]) -> None:
        with contextlib.suppress(OSError), to:
            to.write(self._read or b"")


@dataclass(frozen=True)
class Ladder:
    """Runs `command`, which is that of Python without Python itself."""

    command: Sequence[str]
    timeout: float
    folder: Path
    answers: Answers = field(default_factory=Answers)

    def run(self, way: Variant, modules: int | None = 0) -> Run:
        """`modules`: see `rung.Recorder`."""
        folder = Path(tempfile.mkdtemp(prefix="run_", dir=self.folder))
        told = {
            "folder": str(folder), "compile": dict(way.compile), "exact": way.exact, "modules": modules,
            "doctor": os.getpid(),
        }  # fmt: skip
        path = os.pathsep.join(filter(None, (str(STARTUP), os.environ.get("PYTHONPATH"))))
        environment = {
            **os.environ, "PYTHONPATH": path, rung.VARIABLE: json.dumps(told), trace.VARIABLE: str(folder / "trace"),
            **way.settings,
        }  # fmt: skip
        with tempfile.TemporaryFile() as errors:
            code = self._ended(environment, errors)
            errors.seek(0)
            printed = errors.read().decode(errors="replace").strip().splitlines()[-LAST:]
        return _loaded(folder, code, printed, self.timeout)

    def _ended(self, environment: Mapping[str, str], errors: IO[bytes]) -> int | None:
        """The exit code; None after too long. However it ends, nothing of the program goes on."""
        process = subprocess.Popen(
            [sys.executable, *self.command], env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=errors, start_new_session=True,
        )  # fmt: skip
        try:
            self.answers.give(process.stdin)  # type: ignore[arg-type]
            return process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):  # the first lets launchers end what they have started
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, number)
                    process.wait(GRACE)


def _loaded(folder: Path, code: int | None, printed: list[str], timeout: float) -> Run:
    found = [Noted(**torch.load(path, weights_only=True)) for path in sorted(folder.glob("*.pt"))]
    ranks = sorted((one for one in found if one.rank.isdecimal()), key=lambda one: int(one.rank))
    noted = [one for one in ranks if one.calls or one.alone] or [one for one in found if one.rank == "main"]
    failure = next((one.failure for one in (*noted, *found) if one.failure), "")
    if code is None:
        failure = f"it did not end within {timeout:.0f} s"
    elif code < 0 or code and not found:
        failure = failure or f"the process ended with {code}: {(printed or ['no message'])[-1]}"
    others = [one for one in found if all(one is not known for known in noted) and one.calls]
    run = Run(noted or [Noted()], code or 0, failure, printed, elsewhere=bool(others) or any(folder.glob("*.fork")))
    if any(folder.glob("trace/*")):
        run.traced, run.folder = recorded.read(folder / "trace"), folder / "trace"
    return run

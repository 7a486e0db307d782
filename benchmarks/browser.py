"""A headless Chromium, driven by its DevTools protocol over a pipe: it needs no package beside the browser."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = (
    "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--disable-lcd-text", "--hide-scrollbars",
    "--no-first-run", "--no-sandbox",  # containers have none, and the pages are our own
    "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60.0  # seconds for one answer

Message = dict[str, Any]


def installed() -> str | None:
    """The browser of this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Tab]:
    """An empty tab of a browser with a profile of its own. Raises FileNotFoundError if none is installed."""
    path = installed()
    if path is None:
        raise FileNotFoundError(f"no browser: looked for {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        pipe = _Pipe(path, profile)
        try:
            yield Tab(pipe)
        finally:
            pipe.close()


class Tab:
    """One page. `requests` are the addresses it has asked for, `problems` what its console was told or it raised."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        target = pipe.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = pipe.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Message:
        return self._pipe.call(method, params, self._session)

    def open(self, address: str) -> None:
        """Until the page has loaded. What was asked for and said before is forgotten."""
        self._pipe.events.clear()
        self.call("Page.navigate", url=address)
        self._pipe.wait("Page.loadEventFired")

    def run(self, script: str) -> Any:
        """The value of an expression in JavaScript."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"]["exception"].get("description", script))
        return told["result"].get("value")

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the first element that fits, or of its first line; scrolls there."""
        x, y = self.run(f"""(() => {{ const at = document.querySelector({json.dumps(selector)});
            at.scrollIntoView({{block: "center", behavior: "instant"}}); const box = at.getClientRects()[0];
            return [box.x + box.width / 2, box.y + box.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def enter(self) -> None:
        """The key of that name."""
        key: Message = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        self.call("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
        self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name: str) -> None:
        """light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self) -> bytes:
        """A PNG of what is seen."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    @property
    def requests(self) -> list[str]:
        return [told["request"]["url"] for told in self._pipe.told("Network.requestWillBeSent")]

    @property
    def problems(self) -> list[str]:
        raised = [told["exceptionDetails"]["text"] for told in self._pipe.told("Runtime.exceptionThrown")]
        said = [str(told["args"]) for told in self._pipe.told("Runtime.consoleAPICalled")]
        return raised + said + [told["entry"]["text"] for told in self._pipe.told("Log.entryAdded")]


class _Pipe:
    """The browser's process. It reads from descriptor 3 and writes to 4: JSON, with a zero byte after each message."""

    def __init__(self, path: str, profile: str) -> None:
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        quiet = os.open(os.devnull, os.O_RDWR)
        far = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (theirs_in, theirs_out, quiet)]
        moves = [(os.POSIX_SPAWN_DUP2, far[k], to) for k, to in ((0, 3), (1, 4), (2, 1), (2, 2))]
        command = [path, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self._process = os.posix_spawn(path, command, os.environ, file_actions=moves, setpgroup=0)
        for fd in (theirs_in, theirs_out, quiet, *far):
            os.close(fd)
        self.events: list[Message] = []
        self._number, self._rest = 0, b""

    def call(self, method: str, params: Message, session: str | None = None) -> Message:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (told := self._next()).get("id") != self._number:
            self.events.append(told)
        if "error" in told:
            raise RuntimeError(f"{method}: {told['error']['message']}")
        return told["result"]

    def wait(self, event: str) -> None:
        while not self.told(event):
            self.events.append(self._next())

    def told(self, event: str) -> list[Message]:
        return [told["params"] for told in self.events if told.get("method") == event]

    def _next(self) -> Message:
        parts, end = [self._rest], time.monotonic() + PATIENCE
        while b"\0" not in parts[-1]:
            if not select.select([self._read], [], [], max(end - time.monotonic(), 0))[0]:
                raise TimeoutError("the browser does not answer")
            parts.append(os.read(self._read, 1 << 20))
            if not parts[-1]:
                raise ConnectionError("the browser has ended")
        message, _, self._rest = b"".join(parts).partition(b"\0")
        return json.loads(message)

    def close(self) -> None:
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._read)
        os.close(self._write)

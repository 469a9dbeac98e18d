"""A headless Chromium, driven through its own pipe (DevTools protocol): nothing to install beside.

Used by tests, and at a desk: `python -m tests.browser PAGE.html OUT.png WIDTH [dark]` takes a
picture of a whole page.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-background-networking", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
# The browser reads commands from descriptor 3 and answers on 4; those given may be these two.
_LAUNCH = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
    """Returns a browser: $DIVE_JAX_BROWSER, or one on the path; None if there is none."""
    if chosen := os.environ.get("DIVE_JAX_BROWSER"):
        return chosen
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab. Everything that it asks for and everything that it complains of is kept.

    Attributes:
      requests: Addresses asked for, data: ones left out.
      complaints: Console messages, errors, and breaches of the page's own policy.
    """

    def __init__(self, path: str, *, wait_s: float = 60) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._wait_s, self._asked, self._rest = wait_s, 0, b""
        self._loads = 0
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        arguments = [path, *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(commands), str(answers), *arguments],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.tab(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def tab(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command to the tab and returns its result."""
        return self._send({"method": method, "params": parameters, "sessionId": self._session})

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command to the browser and returns its result."""
        return self._send({"method": method, "params": parameters})

    def open(self, page: Path, *, width: int, height: int, dark: bool = False) -> None:
        """Loads a local page on a screen of a size, in CSS pixels."""
        phone = width < 600
        self.tab(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tab("Emulation.setEmulatedMedia", features=[scheme])
        before = self._loads
        self.tab("Page.navigate", url=page.resolve().as_uri())
        while self._loads == before:
            self._take(self._message())

    def value(self, script: str) -> Any:
        """Returns what a script gives; scripts of the page itself stay forbidden."""
        done = self.tab("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"]["description"])
        return done["result"].get("value")

    def picture(self) -> bytes:
        """Returns the whole page as PNG."""
        size = self.tab("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.tab("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])

    def _send(self, command: dict[str, Any]) -> dict[str, Any]:
        self._asked += 1
        written = json.dumps(command | {"id": self._asked}).encode() + b"\0"
        while written:
            written = written[os.write(self._write, written) :]
        while True:
            answer = self._message()
            if answer.get("id") == self._asked:
                if "error" in answer:
                    raise RuntimeError(f"{command['method']}: {answer['error']['message']}")
                return answer["result"]
            self._take(answer)

    def _message(self) -> dict[str, Any]:
        deadline = time.monotonic() + self._wait_s
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            if not (part := os.read(self._read, 1 << 20)):
                raise RuntimeError("the browser has ended")
            self._rest += part
        first, self._rest = self._rest.split(b"\0", 1)
        return json.loads(first)

    def _take(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loads += 1
            case "Network.requestWillBeSent":
                if not (address := told["request"]["url"]).startswith("data:"):
                    self.requests.append(address)
            case "Log.entryAdded":
                self.complaints.append(told["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(told["exceptionDetails"]["text"])
            case "Runtime.consoleAPICalled":
                self.complaints.append(str([each.get("value") for each in told["args"]]))


def main() -> None:
    """Takes a picture of a page."""
    page, out, width, *more = sys.argv[1:]
    if (path := find()) is None:
        sys.exit("no browser: install chromium, or name one in DIVE_JAX_BROWSER")
    with Browser(path) as browser:
        browser.open(Path(page), width=int(width), height=900, dark="dark" in more)
        Path(out).write_bytes(browser.picture())
        print(browser.value("[document.documentElement.scrollWidth, innerWidth]"))
        print(*browser.requests, *browser.complaints, sep="\n")


if __name__ == "__main__":
    main()

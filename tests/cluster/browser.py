"""browser: a headless Chromium that a test drives over the DevTools protocol, through two pipes (no port, no library).
Every wait has a limit in time."""
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

WAIT_S = 120
BROWSERS = "chromium-headless-shell", "chromium"


def find_chromium():
    """The path of an installed Chromium; None = there is none."""
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


class Browser:
    """One page. `errors` has what the page's console shows as an error."""

    def __init__(self, path):
        self.folder = tempfile.TemporaryDirectory(prefix="cleave-browser-", ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.back, from_write = os.pipe()
        high = [os.dup(to_read), os.dup(from_write)]  # Above 4, so that dup2 below closes neither.

        def connect():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe",
             "--user-data-dir=" + self.folder.name, "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=connect,
            pass_fds=(3, 4, *high), start_new_session=True, env={**os.environ, "HOME": self.folder.name})
        for fd in (to_read, from_write, *high):
            os.close(fd)
        self.rest, self.number, self.session, self.errors, self.requests = b"", 0, None, [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.to)  # Ends it.
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.back)
        self.folder.cleanup()

    def message(self, until):
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.back], [], [], left)[0]:
                raise AssertionError("the browser does not answer")
            data = os.read(self.back, 1 << 16)
            if not data:
                raise AssertionError("the browser has ended")
            self.rest += data
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def note(self, message):
        method, values = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.errors.append(str(values["args"]))
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.errors.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])

    def call(self, method, **values):
        self.number += 1
        command = {"id": self.number, "method": method, "params": values}
        if self.session:
            command["sessionId"] = self.session
        data = json.dumps(command).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        until = time.monotonic() + WAIT_S
        while True:
            message = self.message(until)
            self.note(message)
            if message.get("id") == self.number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]

    def run(self, script):
        """The value of a JavaScript expression, or of its promise."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, script, what):
        until = time.monotonic() + WAIT_S
        while not self.run(f"!!({script})"):
            if time.monotonic() > until:
                raise AssertionError(f"waited {WAIT_S} s for {what}; the page: {self.run('document.body.innerText')}")
            time.sleep(0.05)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href.startsWith('{url}')", "the page")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def theme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def point(self, script):
        """Moves the mouse to the middle of the element that `script` gives."""
        where = self.run(f"(() => {{ const r = ({script}).getClientRects()[0]; "
                         "return [r.left + r.width / 2, r.top + r.height / 2]; })()")
        for step in (1, 0):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=where[0] + step, y=where[1])

    def press(self, key, text=None):
        number = {"Enter": 13, "ArrowRight": 39}[key]
        values = {"key": key, "code": key, "windowsVirtualKeyCode": number}
        self.call("Input.dispatchKeyEvent", type="keyDown", **values, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **values)

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

#!/usr/bin/env python3
"""Opens a sweep's report.html in headless Chromium, offline, and fails if anything is wrong.

    scripts/report_check.py REPORT.html [--screenshot OUT.png]

It must write nothing to the console, request nothing but itself, be as wide as the window and no wider, on a
desk and on a phone, light and dark, and not be blank. Needs Python's own library and `chromium` (Debian:
apt-get install --no-install-recommends chromium), whose protocol it speaks over a pipe.
"""

import argparse
import base64
import json
import os
import pathlib
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

# Nothing here may reach a network: every name is unknown, and what is asked for is recorded besides.
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe",
]


class Browser:
    """Chromium's debugging protocol, over the file descriptors 3 and 4 that it reads and writes."""

    def __init__(self, program, profile):
        to_child, self.write_end = os.pipe()
        self.read_end, from_child = os.pipe()
        # What the child has as 3 and 4 must not be in the way of each other here.
        high = [os.dup2(fd, number) for fd, number in ((to_child, 103), (from_child, 104))]

        def wire():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=wire,
        )
        for fd in (to_child, from_child, *high):
            os.close(fd)
        self.next_id, self.buffer, self.events, self.session = 0, b"", [], None

    def message(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self.read_end, 1 << 16)
            if not chunk:
                raise EOFError("the browser has ended")
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.next_id += 1
        request = {"id": self.next_id, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.write_end, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            message = self.message(deadline)
            if message.get("id") == self.next_id:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def wait_for(self, event):
        deadline = time.monotonic() + 60
        while not any(message.get("method") == event for message in self.events):
            self.events.append(self.message(deadline))

    def value(self, script):
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"]["value"]

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def pixels(png):
    """The rows of an 8-bit RGB or RGBA PNG, unfiltered, and the bytes of a pixel."""
    at, data = 8, b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", png[at + 8:at + 18])
        elif kind == b"IDAT":
            data += png[at + 8:at + 8 + length]
        at += 12 + length
    assert depth == 8 and colour in (2, 6), "Chromium writes RGB or RGBA of 8 bits"
    size = 3 if colour == 2 else 4
    raw, stride = zlib.decompress(data), width * size
    rows, above = [], bytes(stride)
    for number in range(height):
        start = number * (stride + 1)
        kind, row = raw[start], bytearray(raw[start + 1:start + 1 + stride])
        for i in range(stride):
            left = row[i - size] if i >= size else 0
            corner = above[i - size] if i >= size else 0
            if kind == 1:
                row[i] = (row[i] + left) & 255
            elif kind == 2:
                row[i] = (row[i] + above[i]) & 255
            elif kind == 3:
                row[i] = (row[i] + (left + above[i]) // 2) & 255
            elif kind == 4:
                guess = left + above[i] - corner
                near = min((left, above[i], corner), key=lambda v: (abs(guess - v), (v != left), (v != above[i])))
                row[i] = (row[i] + near) & 255
        above = bytes(row)
        rows.append(above)
    return rows, size


def blank(png):
    """Whether a picture has next to nothing on it: few colours, or hardly a pixel that is not the commonest."""
    rows, size = pixels(png)
    counts = {}
    for row in rows:
        for at in range(0, len(row), size):
            colour = row[at:at + 3]
            counts[colour] = counts.get(colour, 0) + 1
    drawn = 1 - max(counts.values()) / sum(counts.values())
    return len(counts) < 32 or drawn < 0.02, len(counts), drawn


def check(browser, page, screenshot):
    problems = []
    targets = browser.call("Target.getTargets")["targetInfos"]
    target = next(target["targetId"] for target in targets if target["type"] == "page")
    browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        browser.call(f"{domain}.enable")
    for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light")):
        what = f"{width} pixels, {scheme}"
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.events.clear()
        browser.call("Page.navigate", url=page.as_uri())
        browser.wait_for("Page.loadEventFired")
        # Whatever is to be said of the page is said by the time that it is drawn.
        picture = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip={
            "x": 0, "y": 0, "width": width, "height": browser.value("document.documentElement.scrollHeight"), "scale": 0.25})
        for event in browser.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                # A picture in the page is named like a request and leaves nothing.
                if url != page.as_uri() and not url.startswith("data:"):
                    problems.append(f"{what}: it asks for {url[:160]}")
            elif method == "Runtime.consoleAPICalled":
                problems.append(f"{what}: the console says {params['type']}")
            elif method == "Log.entryAdded":
                problems.append(f"{what}: the log says {params['entry']['text']}")
            elif method == "Runtime.exceptionThrown":
                problems.append(f"{what}: {params['exceptionDetails']['text']}")
        is_blank, colours, drawn = blank(base64.b64decode(picture["data"]))
        if is_blank:
            problems.append(f"{what}: blank ({colours} colours, {100 * drawn:.1f} % drawn)")
        wide = browser.value("document.documentElement.scrollWidth")
        if wide > width:
            problems.append(f"{what}: it is {wide} pixels wide")
        drawings = browser.value("[...document.querySelectorAll('svg')].map(s => s.getBBox().width * s.getBBox().height)")
        if not drawings or min(drawings) <= 0:
            problems.append(f"{what}: an empty figure")
        print(f"{what}: {len(drawings)} figures, {colours} colours, {100 * drawn:.1f} % drawn")
        if screenshot and width == 1280:
            name = screenshot if scheme == "light" else screenshot.with_stem(f"{screenshot.stem}-{scheme}")
            height = browser.value("document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
            picture = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
            name.write_bytes(base64.b64decode(picture["data"]))
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("--screenshot", type=pathlib.Path, help="where to put a picture; the dark one has -dark in its name")
    arguments = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.exit("no chromium: apt-get install --no-install-recommends chromium")
    if not arguments.report.is_file():
        sys.exit(f"{arguments.report}: no such file")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            problems = check(browser, arguments.report.resolve(), arguments.screenshot)
        finally:
            browser.close()
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

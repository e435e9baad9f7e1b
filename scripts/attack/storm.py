"""What an attempt is: the program, started once or several times at once, and what is wrong with its end."""

import os
import pathlib
import random
import re
import resource
import subprocess
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent.parent.parent
DEBUG = HERE / "configs/debug.toml"
CODES = {0, 1, 2, 65, 69, 71, 73, 74, 75, 76, 78, 79, 130}
SECONDS, MEMORY_MIB, TEXT = 30, 1024, 8192
# An `error:` that begins no line: a script that looks for lines of errors misses it.
HIDDEN = re.compile(rb"[^\s\w`'\"(]error: ")


class Attempt:
    """A started program; `end` waits for it."""

    def __init__(self, storm, what, arguments, prepare=None, before=(), **streams):
        self.storm, self.what, self.start = storm, what, time.monotonic()
        self.command = [*map(str, before), storm.binary, *map(str, arguments)]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        cache, runtime = storm.work / "cache", storm.work / "runtime"
        # Without one Mesa writes errors of its own.
        runtime.mkdir(mode=0o700, exist_ok=True)
        environment = os.environ | {"XDG_CACHE_HOME": str(cache), "XDG_RUNTIME_DIR": str(runtime), "NO_COLOR": "1"}
        # A session of its own: what the program or a wrapper of it started ends with it.
        self.child = subprocess.Popen(
            self.command, env=environment, preexec_fn=prepare, cwd=storm.work, start_new_session=True, **streams
        )
        self.timer = threading.Timer(SECONDS, self.kill)
        self.timer.start()
        self.pieces, self.threads = {}, []
        for name in ("stdout", "stderr"):
            stream = getattr(self.child, name)
            if stream:
                thread = threading.Thread(target=self.read, args=(name, stream))
                thread.start()
                self.threads.append(thread)

    def read(self, name, stream):
        self.pieces[name] = stream.read()
        stream.close()

    def kill(self):
        try:
            os.killpg(self.child.pid, 9)
        except ProcessLookupError:
            pass

    def end(self, refuse=False, quiet=False, killed=False, codes=None, memory=MEMORY_MIB, seconds=SECONDS, names=()):
        """Waits, and notes what is wrong: `codes` that it may end with, `names` that its messages must have."""
        _, status, usage = os.wait4(self.child.pid, 0)
        code = self.child.returncode = os.waitstatus_to_exitcode(status)
        self.timer.cancel()
        for thread in self.threads:
            thread.join()
        errors = self.pieces.get("stderr", b"")
        text = self.pieces.get("stdout", b"") + errors
        self.text = text.decode(errors="replace")
        took, mib = time.monotonic() - self.start, usage.ru_maxrss // 1024
        storm = self.storm
        storm.attempts += 1
        storm.slowest, storm.largest = max(storm.slowest, took), max(storm.largest, mib)
        storm.refused += code != 0
        faults = []
        was_killed = killed and code == -9
        if was_killed:
            storm.killed += 1
        elif code not in (codes or CODES):
            faults.append(f"exit code {code}" + (f", not one of {sorted(codes)}" if codes else ""))
        if b"panicked" in text or b"internal error" in text:
            faults.append("a panic")
        if not quiet and len(text) > TEXT:
            faults.append(f"{len(text)} bytes of messages")
        if any(byte < 32 and byte not in b"\n\t" or byte == 127 for byte in text):
            faults.append("a control character")
        lines = sum(line.startswith(b"error: ") for line in errors.split(b"\n"))
        if "stderr" in self.pieces and not was_killed and lines != (code != 0):
            faults.append(f"{lines} lines begin with `error: `, exit code {code}")
        elif HIDDEN.search(errors):
            faults.append("`error: ` inside a line")
        if took >= seconds:
            faults.append(f"{took:.0f} s")
        if mib > memory:
            faults.append(f"{mib} MiB")
        if refuse and code == 0:
            faults.append("accepted")
        if code != 0 and not was_killed:
            faults += [f"{name} is not named" for name in names if name not in self.text]
        if faults:
            last = self.text.strip().splitlines()[-1:]
            storm.wrong.append(f"{self.what}: {', '.join(faults)}: {' '.join(last)[:200]!r}")
        return code


class Storm:
    """The attempts of a group."""

    def __init__(self, binary, work, count, seed):
        self.binary, self.work, self.count = binary, work, count
        self.random = random.Random(seed)
        self.attempts, self.refused, self.killed, self.wrong, self.notes = 0, 0, 0, [], []
        self.slowest, self.largest = 0.0, 0

    def start(self, what, *arguments, **more):
        return Attempt(self, what, arguments, **more)

    def run(self, what, *arguments, prepare=None, before=(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more):
        """Runs the program; notes what is wrong with its end. Returns the exit code."""
        attempt = self.start(what, *arguments, prepare=prepare, before=before, stdout=stdout, stderr=stderr)
        return attempt.end(**more)

    def check(self, is_right, what):
        """Notes `what` unless it is right."""
        if not is_right:
            self.wrong.append(what)
        return is_right

    def mutated(self, content):
        """`content` cut, or with some bytes changed, moved or repeated."""
        content, place = bytearray(content), self.random.randrange(len(content))
        kind = self.random.randrange(5)
        if kind == 0:
            return bytes(content[:place])
        if kind == 1:
            for _ in range(self.random.randint(1, 8)):
                content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        elif kind == 2:
            content[place] = self.random.choice([0, 0x7F, 0x80, 0xFF])
        elif kind == 3:
            end = min(len(content), place + self.random.randint(1, 64))
            content[place:end] = content[place:end] * 2
        else:
            end = min(len(content), place + self.random.randint(1, 64))
            content[place:end] = self.random.randbytes(end - place)
        return bytes(content)


RESULT = ("metrics.jsonl", "checkpoints/step-00000024/model.safetensors")


def train(storm, what, name, root=None, codes=(0,), options=(), **more):
    """The run that all groups know, of configs/debug.toml."""
    return storm.run(what, "train", DEBUG, "--set", f"run.root={root or storm.work}", "--set", f"run.name={name}",
                     "--set", "devices.threads=1", "--set", "data.workers=1", "--resume", "auto", *options, quiet=True,
                     codes=codes, **more)


def compare(storm, what, root, name):
    """Compares a run with the undisturbed one."""
    for file in RESULT:
        try:
            same = (storm.work / "debug" / file).read_bytes() == (root / name / file).read_bytes()
        except FileNotFoundError as error:
            storm.wrong.append(f"{what}: {error.filename} is missing")
            return
        storm.check(same, f"{what}: {file} differs from the undisturbed run's")


def limit(kind, value):
    """For `prepare`: a limit of the system."""
    return lambda: resource.setrlimit(kind, (value, value))

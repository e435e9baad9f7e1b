"""Processes that write one output at once, and processes that are killed while they write."""

import functools
import shutil
import subprocess
import threading

from .outputs import Output, content, emptied, folder, is_hidden, judge, outputs, sweep_file, undisturbed

# What a process is killed at: of each call the most that are counted.
CALLS = {"?write": 12, "?fsync,?fdatasync": 3, "?rename,?renameat,?renameat2": 2}


@functools.lru_cache(maxsize=None)
def has_strace():
    """Whether there is one that may trace; it may be forbidden in a container."""
    if not shutil.which("strace"):
        return False
    ended = subprocess.run(["strace", "-f", "-o", "/dev/null", "true"], stdin=subprocess.DEVNULL, capture_output=True)
    return ended.returncode == 0


def writers(storm):
    commands = outputs(storm)
    expected = undisturbed(storm, commands)
    at_once(storm, expected)
    links(storm, [output for output in commands if output.file], expected)
    kills(storm, commands, expected)


def together(storm, what, *commands):
    """Starts all, then waits for all; they must end well."""
    attempts = [storm.start(f"{what}, process {n}", *command) for n, command in enumerate(commands)]
    return [attempt.end(codes=(0,), quiet=True) for attempt in attempts]


def at_once(storm, expected):
    plan = Output("sweep plan", ["sweep", "plan", storm.work / "plan.toml"])
    for i in range(storm.count):
        emptied(storm)
        codes = together(storm, f"writers {i}: three plans", *[plan.arguments] * 3)
        judge(storm, f"writers {i}: three plans", plan, max(codes), expected[plan.name])

    weights = folder(storm) / "x.pth"
    bytes_of = []
    for run in ("debug", "other"):
        emptied(storm)
        storm.run(f"writers: export {run}", "export", storm.work / run, "-o", weights, codes=(0,))
        bytes_of.append(content(folder(storm)))
    storm.check(bytes_of[0] != bytes_of[1], "writers: two runs have the same weights")
    for i in range(storm.count):
        together(storm, f"writers {i}: four exports",
                 *(["export", storm.work / ("debug", "other")[n % 2], "-o", weights, "--force"] for n in range(4)))
        found = content(folder(storm))
        storm.check(found in bytes_of, f"writers {i}: four exports left {found}")

    root = storm.work / "sweeps"
    file = sweep_file(storm, "sweep", root, seeds="0")
    storm.run("writers: a sweep", "sweep", "run", file, "-j", "1", codes=(0,), quiet=True)
    runs = runs_of(root)
    storm.check(runs, "writers: a sweep made no run")
    storm.run("writers: its summary", "sweep", "summarize", file, codes=(0,), quiet=True)
    whole = content(root)
    for i in range(storm.count):
        together(storm, f"writers {i}: three summaries", *[["sweep", "summarize", file]] * 3)
        found = content(root)
        # Locks and what else names its process may differ.
        other = [name for name in sorted(whole.keys() | found.keys())
                 if found.get(name) != whole.get(name) and "LOCK" not in name and not name.endswith((".log", "log.txt"))]
        storm.check(not other, f"writers {i}: three summaries: {other[:5]} are others than of one")
    for i in range(max(1, storm.count // 5)):
        shutil.rmtree(root)
        together(storm, f"writers {i}: two sweeps", *[["sweep", "run", file, "-j", "1"]] * 2)
        storm.check(runs_of(root) == runs, f"writers {i}: two sweeps: the runs have other bytes than of one")
        left = [name for name in content(root) if ".tmp" in name]
        storm.check(not left, f"writers {i}: two sweeps left {left[:5]}")


def runs_of(root):
    """What must be the same bytes, of all runs."""
    kept = ("metrics.jsonl", "model.safetensors")
    return {name: hashed for name, hashed in content(root).items() if name.endswith(kept) and not is_hidden(name)}


def links(storm, commands, expected):
    """A link where a temporary file may be is not followed."""
    victim = storm.work / "victim"
    for output in commands:
        out = emptied(storm)
        victim.write_text("mine")
        links = [out / f".tmp-{output.file}", out / f".{output.file}.tmp", out / f"{output.file}.tmp"]
        for link in links:
            link.symlink_to(victim)
        what = f"writers: {output.name} beside links"
        code = storm.run(what, *output.arguments, codes=(0,), quiet=True)
        storm.check(victim.exists() and victim.read_bytes() == b"mine", f"{what}: what they lead to was written")
        storm.check(not (out / output.file).is_symlink(), f"{what}: {output.file} is a link")
        for link in links:
            link.unlink(missing_ok=True)
        judge(storm, what, output, code, expected[output.name])


def kills(storm, commands, expected):
    if not has_strace():
        storm.notes.append("writers: nothing was killed at a certain call, as there is no strace, or it may not trace")
    for i in range(max(1, storm.count // 10)):
        for output in commands:
            again(storm, f"writers {i}: {output.name}, killed at some time", output, expected[output.name],
                  after=output.seconds * storm.random.uniform(0.3, 1.05))
            if has_strace():
                calls = storm.random.choice(list(CALLS))
                when = storm.random.randint(1, CALLS[calls])
                before = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}",
                          "-e", f"inject={calls}:signal=KILL:when={when}"]
                again(storm, f"writers {i}: {output.name}, killed at {calls.replace('?', '')} {when}", output,
                      expected[output.name], before=before)


def again(storm, what, output, expected, after=None, before=()):
    """Kills the command, and starts it once more."""
    out = emptied(storm)
    attempt = storm.start(what, *output.arguments, before=before)
    timer = threading.Timer(after, attempt.kill) if after is not None else None
    if timer:
        timer.start()
    code = attempt.end(killed=True, codes=(0,), quiet=True)
    if timer:
        timer.cancel()
    judge(storm, what, output, code, expected)
    if not output.goes_on:
        for path in out.iterdir():
            if not path.name.startswith("."):
                remove_shown(path)
    what += ", and again"
    code = storm.run(what, *output.arguments, codes=(0,), quiet=True)
    judge(storm, what, output, code, expected)


def remove_shown(path):
    """Removes a file, or what of a folder is not hidden."""
    if not path.is_dir():
        path.unlink()
        return
    for inner in path.iterdir():
        if not inner.name.startswith("."):
            shutil.rmtree(inner) if inner.is_dir() else inner.unlink()

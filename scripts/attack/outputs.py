"""The commands that write files: what each makes when nothing disturbs it, and whether what lies there is whole."""

import hashlib
import re
import shutil
import time

from .made import classes_folder
from .storm import DEBUG, train

SCRIPT = "python main.py --model vim_tiny_patch16_224_bimambav2_rk4 --batch-size 128 --lr 5e-4 --data-path data\n"
SWEEP = """extends = "{debug}"
[run]
root = "{root}"
name = "{{model.discretization}}-s{{run.seed}}"
[data]
shapes = {{ train = 64, val = 32, test = 32 }}
[train]
epochs = 1
[optim]
warmup = "1st"
[sweep]
name = "sweep"
seeds = [{seeds}]
[sweep.grid]
"model.discretization" = ["zoh", "bilinear"]
"""


class Output:
    """A command that writes into a folder: `arguments` of that, and whether it goes on with what is there."""

    def __init__(self, name, arguments, file=None, goes_on=False, wholes=()):
        self.name, self.arguments, self.file, self.goes_on = name, arguments, file, goes_on
        # Folders that are there with all their files, or not at all.
        self.wholes = wholes
        # How long it takes.
        self.seconds = 0.0


def sweep_file(storm, name, root, seeds="0, 1, 2"):
    path = storm.work / f"{name}.toml"
    path.write_text(SWEEP.format(debug=DEBUG, root=root, seeds=seeds))
    return path


def folder(storm):
    """Where all of them write: their results have the path in them."""
    return storm.work / "out"


def outputs(storm):
    """The commands, once what they read has been made."""
    work = storm.work
    debug, other, images, script = work / "debug", work / "other", work / "photos", work / "script.sh"
    weights, first, second, measured = work / "in.pth", work / "first.csv", work / "second.csv", work / "bench.json"
    if not measured.exists():
        classes_folder(images, 24)
        script.write_text(SCRIPT)
        train(storm, "outputs: another run", "other", options=("--set", "run.seed=1"))
        for arguments in (
            ["export", debug, "-o", weights],
            ["eval", debug, "--predictions", first],
            ["eval", other, "--predictions", second],
            ["bench", DEBUG, "--mode", "infer", "--batch", "1", "--classes", "4", "--steps", "2", "--warmup", "1",
             "--device", "cpu", "-o", measured],
        ):
            storm.run(f"outputs: {arguments[0]}", *arguments, codes=(0,), quiet=True)
    out = folder(storm)
    data = ["--set", "data.dataset=folder", "--set", f"data.path={images}", "--set", f"data.index_cache={work}/indexes"]
    plan = sweep_file(storm, "plan", out)

    def one(name, file, *arguments, flag="-o"):
        return Output(name, [*arguments, flag, out / file], file)

    return [
        one("export", "x.pth", "export", debug),
        one("import", "x.safetensors", "import", weights),
        one("features", "x.npz", "features", images, "--checkpoint", debug),
        one("eval --predictions", "p.csv", "eval", debug, flag="--predictions"),
        one("eval --per-class", "c.csv", "eval", debug, flag="--per-class"),
        one("eval --confusion", "c.svg", "eval", debug, flag="--confusion"),
        one("predict to HTML", "p.html", "predict", images, "--checkpoint", debug),
        one("predict to CSV", "p.csv", "predict", images, "--checkpoint", debug),
        one("eval compare", "d.csv", "eval", "compare", first, second, flag="--images"),
        one("config migrate", "m.toml", "config", "migrate", script),
        one("runs compare", "p.svg", "runs", "compare", debug, other, flag="--plot"),
        one("data show", "s.png", "data", "show", DEBUG, flag="--out"),
        Output("bench compare", ["bench", "compare", measured, "-o", out / "compared"]),
        Output("man", ["man", out / "man"]),
        Output("data pack", ["data", "pack", *data, "-o", out / "pack"], wholes=("pack/train", "pack/val")),
        Output("sweep plan", ["sweep", "plan", plan], goes_on=True),
    ]


def emptied(storm):
    """The folder, empty."""
    out = folder(storm)
    if out.exists():
        for path in out.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    out.mkdir(exist_ok=True)
    return out


def content(out):
    """Each file below a folder: its length and the hash of its bytes. Hidden files too."""
    found = {}
    for path in sorted(out.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            # When a plan or a report was made.
            same = re.sub(rb'^planned = ".*"$|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?', b"", data, flags=re.MULTILINE)
            found[str(path.relative_to(out))] = len(data), hashlib.sha256(same).hexdigest()
    return found


def is_hidden(name):
    """Whether it is there while something is written alone."""
    return name.endswith(".lock") or any(part.startswith(".") for part in name.split("/"))


def undisturbed(storm, commands):
    """What each makes, by its name."""
    made = {}
    for output in commands:
        out = emptied(storm)
        began = time.monotonic()
        storm.run(f"{output.name}, undisturbed", *output.arguments, codes=(0,), quiet=True)
        output.seconds = time.monotonic() - began
        made[output.name] = content(out)
        hidden = sorted(filter(is_hidden, made[output.name]))
        storm.check(made[output.name], f"{output.name}, undisturbed: it wrote nothing")
        storm.check(not hidden, f"{output.name}, undisturbed: it left {hidden}")
    return made


def judge(storm, what, output, code, expected):
    """Notes what is neither whole nor absent; of a command that ended well, also what is missing or too much."""
    found = content(folder(storm))
    for name, (length, digest) in found.items():
        if not is_hidden(name) and expected.get(name) != (length, digest):
            wanted = expected[name][0] if name in expected else "none"
            storm.wrong.append(f"{what}: exit code {code}, {name} has {length} bytes, and not the {wanted} that it should")
    for whole in output.wholes:
        there = {name for name in found if name.startswith(f"{whole}/")}
        wanted = {name for name in expected if name.startswith(f"{whole}/")}
        storm.check(there in (set(), wanted), f"{what}: exit code {code}, of {whole} {len(there)} of {len(wanted)} files")
    if code == 0:
        missing, more = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
        storm.check(not missing, f"{what}: exit code 0, and {missing[:5]} are missing")
        storm.check(not more, f"{what}: exit code 0, and {more[:5]} are left")

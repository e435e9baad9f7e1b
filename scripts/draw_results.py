#!/usr/bin/env python3
"""Keep the records of studies in docs/results/, and put their tables into docs/results.md, docs/collapse.md and README.md.

    scripts/draw_results.py --keep FOLDER [vim-train]   take the records of a sweep's folder, as far as it is trained
    scripts/draw_results.py --restore NAME FOLDER       make a sweep's folder of its records, in which a study goes on
    scripts/draw_results.py                             write the tables
    scripts/draw_results.py --check                     change nothing; exit 1 if a table is out of date or a record unlike it

In a page a study's table stands between `<!-- results NAME -->` and `<!-- /results -->`, with fewer columns between
`<!-- brief NAME -->` and `<!-- /brief -->`; that of a search, with a row for each
method and a column for each value of KEY, between `<!-- search NAME KEY -->` and `<!-- /search -->`; and one with a column for
each setting of some keys, and a row for each of the others, between `<!-- grid NAME KEY,KEY -->` and `<!-- /grid -->`. NAME is
the sweep's. Of a study docs/results/NAME has

    sweep.toml, plan.jsonl   as the sweep has them
    configs/ID.toml          of the first run; plan.jsonl says what the others have otherwise
    metrics/RUN.jsonl.gz     each run's metrics.jsonl
    ends.json                of each finished run exit.json
    summary.json             what `vim-train sweep summarize FOLDER --json` prints, but for `losses` and `scores`, which are in
                             metrics.jsonl, and `pairs`
    NAME.svg                 the figures of the sweep's report that a page shows

Means, deviations, intervals and p are those of summary.json; nothing is computed twice. A result that is not in its run's
metrics.jsonl is an error.
"""

import gzip
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORDS, PAGES = ROOT / "docs/results", [ROOT / page for page in ("docs/results.md", "docs/collapse.md", "README.md")]
MOST_BYTES = 5_000_000
SCORES = {"top1": "top-1", "top5": "top-5", "miou": "mIoU", "box_ap": "box AP", "mask_ap": "mask AP"}
FIGURE = re.compile(r"\(results/([\w-]+/[\w-]+\.svg)\)")
MARK = re.compile(r"<!-- (results|brief|search|grid) (\S+?)(?: (\S+))? -->\n(.*?)<!-- /\1 -->", re.DOTALL)
METHOD = "model.discretization"


def keep(folder, binary):
    """Takes the records of a sweep's folder."""
    command = [binary, "sweep", "summarize", str(folder), "--json"]
    printed = subprocess.run(command, stdout=subprocess.PIPE)
    if printed.returncode:
        sys.exit(f"error: {' '.join(command)} ended with {printed.returncode}")
    summary = json.loads(printed.stdout)
    summary.pop("pairs", None)
    to = RECORDS / folder.resolve().name
    shutil.rmtree(to, ignore_errors=True)
    for name in ("metrics", "configs"):
        (to / name).mkdir(parents=True)
    ends = {}
    for run in summary["runs"]:
        for key in ("losses", "scores"):
            run.pop(key, None)
        name = run["name"]
        metrics, end = folder / name / "metrics.jsonl", folder / name / "exit.json"
        if metrics.exists():
            # Without a time, so that the same record is the same file.
            (to / "metrics" / f"{name}.jsonl.gz").write_bytes(gzip.compress(metrics.read_bytes(), mtime=0))
        if end.exists() and json.loads(end.read_text())["reason"] == "finished":
            ends[name] = json.loads(end.read_text())
    (to / "ends.json").write_text(json.dumps(ends, indent=1) + "\n")
    for name in ("sweep.toml", "plan.jsonl", f"configs/{summary['runs'][0]['id']}.toml"):
        shutil.copyfile(folder / name, to / name)
    (to / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    for figure in (RECORDS / figure for figure in figures()):
        if figure.parent == to:
            shutil.copyfile(folder / "figures" / figure.name, figure)
    size = sum(path.stat().st_size for path in RECORDS.rglob("*") if path.is_file())
    print(f"{to.relative_to(ROOT)}: {len(summary['runs'])} runs; {size / 1e6:.2f} MB in docs/results")


def figures():
    """The figures that pages show, as STUDY/NAME.svg."""
    return {figure for page in PAGES for figure in FIGURE.findall(page.read_text())}


def restore(name, folder):
    """Makes a sweep's folder with the finished runs of its records: `sweep run` trains the others."""
    ends = RECORDS / name / "ends.json"
    if not ends.is_file():
        sys.exit(f"error: {ends} is not there: of {name} no runs are kept that a study can go on from")
    if folder.exists():
        sys.exit(f"error: {folder} is there already")
    runs = {run["name"]: run for run in json.loads((RECORDS / name / "summary.json").read_text())["runs"]}
    for run, end in json.loads(ends.read_text()).items():
        to, known = folder / run, runs[run]
        machine = known["machine"] | {"slurm": {"SLURM_JOB_ID": known["machine"]["job"]}, "total_steps": known["total_steps"]}
        timing = {"step": known["step"], "images_per_second": known["images_per_second"], "elapsed_s": known["seconds"]}
        to.mkdir(parents=True)
        (to / "metrics.jsonl").write_bytes(gzip.decompress((RECORDS / name / "metrics" / f"{run}.jsonl.gz").read_bytes()))
        (to / "exit.json").write_text(json.dumps(end, indent=2) + "\n")
        (to / "env.json").write_text(json.dumps(machine, indent=2) + "\n")
        (to / "timing.jsonl").write_text(json.dumps(timing) + "\n")


class Study:
    """The records of a study."""

    def __init__(self, name):
        self.folder = RECORDS / name
        self.of = json.loads((self.folder / "summary.json").read_text())
        self.metric = self.of["summary"]["metric"]
        # A loss is a number, every other score a share.
        self.factor = 1 if self.metric.endswith("/loss") else 100
        *where, score = self.metric.split("/")
        self.name = " ".join([*where, SCORES.get(score, score)]) + (", %" if self.factor == 100 else "")

    def metrics(self, run):
        """A run's records."""
        path = self.folder / "metrics" / f"{run}.jsonl.gz"
        return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()] if path.exists() else []

    def unlike(self):
        """Runs whose result is not in their records."""
        split, *averaged, score = self.metric.split("/")
        seeds = [seed for group in self.of["summary"]["groups"] for seed in group["seeds"] if seed["value"] is not None]
        if split == "train" or self.of["summary"]["pick"] != "last":
            return
        for seed in seeds:
            found = [one for one in self.metrics(seed["name"]) if one["kind"] == "eval" and one["split"] == split]
            found = [one for one in found if one["step"] == found[-1]["step"]]
            # A test is of the weights or of their average, whichever was best on val.
            found = [one for one in found if one["weights"] == ("ema" if averaged else "model")] or found
            if not found or found[-1].get(score) != seed["value"]:
                yield f"{self.folder.relative_to(ROOT)}: {seed['name']}: no record of {self.metric} = {seed['value']}"

    def label(self, group):
        """What a line is called: its method where that tells it from the others."""
        methods = [one["assignments"].get(METHOD) for one in self.of["summary"]["groups"]]
        own = group["assignments"].get(METHOD)
        return own if own and methods.count(own) == 1 else group["label"]

    def number(self, value, sign=""):
        """A score, or a difference of two."""
        return "–" if value is None else f"{value * self.factor:{sign}.{2 if self.factor == 100 else 4}f}".replace("-", "−")

    def mean(self, group):
        """The mean over seeds and its sample deviation, or why there is none."""
        sample = group["sample"]
        if sample is None:
            return "diverged" if group["diverged"] == group["planned"] else "–"
        return self.number(sample["mean"]) + (f" ± {self.number(sample['sd'])}" if sample["sd"] is not None else "")

    def brief(self):
        """The table's results and differences alone."""
        rows = (line.replace("\\|", "").strip("|").split("|") for line in self.table())
        return ["|" + "|".join([*row[:5], row[6]]) + "|" for row in rows]

    def table(self):
        """A line for each setting: its results, and how it differs from the baseline."""
        groups = self.of["summary"]["groups"]
        baseline = next((self.label(group) for group in groups if group["is_baseline"]), "")
        steps = any(group["largest_delta_a"] is not None for group in groups)
        columns = ["", "n", self.name, f"minus {baseline}", "95 % interval", "p", "p (Holm)", "diverged", "minutes"]
        columns += ["largest \\|ΔA\\|"] if steps else []
        lines = ["| " + " | ".join(columns) + " |", "|---|" + "--:|" * (len(columns) - 1)]
        for group in groups:
            seconds, largest = group["seconds"], group["largest_delta_a"]
            row = [self.label(group), f"{group['sample']['n'] if group['sample'] else 0}/{group['planned']}", self.mean(group)]
            row += self.difference(group)
            row += [f"{group['diverged']}/{group['planned']}", "–" if seconds is None else f"{seconds['mean'] / 60:.1f}"]
            row += ["–" if largest is None else f"{largest:.3g}"] if steps else []
            lines.append("| " + " | ".join(row) + " |")
        return lines

    def difference(self, group):
        """The cells of a comparison: the mean, its interval, p, and p corrected."""
        compared = group["comparison"]
        if compared is None or compared["paired"] is None:
            return ["baseline" if group["is_baseline"] else "–", "–", "–", "–"]
        paired = compared["paired"]
        mean, half = paired["mean"], paired["half_width"]
        between = "–" if half is None else f"{self.number(mean - half, '+')} to {self.number(mean + half, '+')}"
        return [self.number(mean, "+"), between, chance(paired["p"]), chance(compared["p_holm"])]

    def search(self, key):
        """A line for each method and a column for each value of `key`; the last line has the means, the best in bold."""
        groups = self.of["summary"]["groups"]
        values = list(dict.fromkeys(group["assignments"][key] for group in groups))
        methods = list(dict.fromkeys(group["assignments"][METHOD] for group in groups))
        cells = {(group["assignments"][METHOD], group["assignments"][key]): group for group in groups}
        rows = [[self.name, *(f"{key} = {value}" for value in values)]]
        for method in methods:
            row = [cells.get((method, value)) for value in values]
            rows.append([method, *("–" if group is None else self.mean(group) for group in row)])
        means = []
        for value in values:
            samples = [cells[method, value]["sample"] for method in methods if (method, value) in cells]
            # A mean over some of the methods would be compared with one over all.
            whole = len(samples) == len(methods) and None not in samples
            means.append(sum(sample["mean"] for sample in samples) / len(samples) if whole else None)
        choose = min if self.factor == 1 else max
        best = choose((mean for mean in means if mean is not None), default=None)
        shown = [self.number(mean) if mean is None or mean != best else f"**{self.number(mean)}**" for mean in means]
        rows.append([f"mean of {len(methods)} methods", *shown])
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return [lines[0], "|---|" + "--:|" * len(values), *lines[1:]]

    def grid(self, keys):
        """A column for each setting of `keys`, a row for each of the others that differ and ran: the mean, and the largest |ΔA|."""
        groups, keys = self.of["summary"]["groups"], keys.split(",")
        values = {key: {group["assignments"][key] for group in groups} for key in groups[0]["assignments"]}
        others = [key for key in values if key not in keys and len(values[key]) > 1]
        cells, ran = {}, set()
        for group in groups:
            column, row = (" · ".join(str(group["assignments"][key]) for key in some) for some in (keys, others))
            largest = group["largest_delta_a"]
            cells.setdefault(row, {})[column] = self.mean(group) + ("" if largest is None else f" ({largest:.3g})")
            ran |= {row for seed in group["seeds"] if seed["state"]["is"] != "missing"}
        cells = {name: row for name, row in cells.items() if name in ran}
        columns = list(dict.fromkeys(column for row in cells.values() for column in row))
        lines = [f"| {self.name} | " + " | ".join(columns) + " |", "|---|" + "--:|" * len(columns)]
        return lines + [f"| {name} | " + " | ".join(row.get(column, "") for column in columns) + " |" for name, row in cells.items()]


def chance(p):
    """A p."""
    return "–" if p is None else "< 0.001" if p < 1e-3 else f"{p:.3f}"


def main():
    """Write what is out of date, or name it."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--keep"] and len(arguments) in (2, 3):
        return keep(pathlib.Path(arguments[1]), arguments[2] if len(arguments) == 3 else "vim-train")
    if arguments[:1] == ["--restore"] and len(arguments) == 3:
        return restore(arguments[1], pathlib.Path(arguments[2]))
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    wrong = []

    def drawn(mark):
        kind, name, key, _ = mark.groups()
        lines = ["Not run yet."]
        if (RECORDS / name / "summary.json").exists():
            study = Study(name)
            wrong.extend(study.unlike())
            known = study.of["summary"]["groups"][0]["assignments"]
            if unknown := [one for one in (key or "").split(",") if one and one not in known]:
                sys.exit(f"error: the mark `{kind} {name} {key}` names {', '.join(unknown)}; the study differs in {', '.join(known)}")
            lines = {"results": study.table, "brief": study.brief, "search": lambda: study.search(key), "grid": lambda: study.grid(key)}[kind]()
        head = f"<!-- {kind} {name}{' ' + key if key else ''} -->"
        return "\n".join([head, *lines, f"<!-- /{kind} -->"])

    texts = {page: page.read_text() for page in PAGES}
    shown = {mark[2] for text in texts.values() for mark in MARK.finditer(text)}
    wrong += [f"docs/results/{path.name} is in no page" for path in RECORDS.glob("*") if path.name not in shown]
    kept = {str(path.relative_to(RECORDS)) for path in RECORDS.glob("*/*.svg")}
    wrong += [f"docs/results/{figure} is {'in no page' if figure in kept else 'not there'}" for figure in kept ^ figures()]
    size = sum(path.stat().st_size for path in RECORDS.rglob("*") if path.is_file())
    wrong += [f"docs/results has {size} bytes, more than {MOST_BYTES}"] if size > MOST_BYTES else []
    for page, text in texts.items():
        wanted = MARK.sub(drawn, text)
        if wanted == text:
            continue
        if arguments:
            wrong.append(f"out of date: {page.relative_to(ROOT)}: run scripts/draw_results.py")
        else:
            page.write_text(wanted)
            print(f"wrote: {page.relative_to(ROOT)}")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()

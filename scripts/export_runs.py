#!/usr/bin/env python3
"""Copy runs of vim-train into Weights & Biases or MLflow, with these trackers' own packages and offline.

Reads config.toml, metrics.jsonl, timing.jsonl, env.json and exit.json of each run's folder and changes nothing there.
Metrics have the names that TensorBoard shows: train/loss, val/top1, test/ema/top1, train/img_s. A folder that is no
run, as that of a sweep, stands for all runs below it.

  --to wandb    writes OUT/wandb/offline-run-*; `wandb sync OUT/wandb/offline-run-*` uploads them from where there is a network
  --to mlflow   writes a file store; `MLFLOW_TRACKING_URI=file:OUT mlflow ui` shows it

Exporting a run again makes the same run in Weights & Biases (its id comes from the folder's path), another in MLflow.
Nothing is sent anywhere by this script. Needs Python 3.11 or later, and wandb or mlflow-skinny from PyPI.

Examples:
  export_runs.py --to wandb --project vim-ablation --out export data/runs/shapes-ablation
  export_runs.py --to mlflow --project cifar100 --out export data/runs/zoh-s0 data/runs/foh-s0
"""

import argparse
import hashlib
import json
import math
import os
import pathlib
import sys
import tomllib


def read_json(path):
    return json.loads(path.read_text()) if path.exists() else {}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def flat(table, prefix=""):
    """A configuration as {"train.epochs": 300, ...}."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def history(run):
    """{step: {name: value}}, in the order of the steps."""
    steps = {}
    for record in lines(run / "metrics.jsonl"):
        group = record["kind"]
        if group == "eval":
            group = record["split"] + ("" if record.get("weights", "model") == "model" else f"/{record['weights']}")
        for name, value in record.items():
            if name not in ("step", "images") and isinstance(value, (int, float)):
                steps.setdefault(record["step"], {})[f"{group}/{name}"] = value
    for record in lines(run / "timing.jsonl"):
        if "images_per_second" not in record:
            continue  # a process began
        row = steps.setdefault(record["step"], {})
        for name, tag in (("images_per_second", "train/img_s"), ("data_wait_s", "train/data_wait_s")):
            if isinstance(record.get(name), (int, float)):
                row[tag] = record[name]
    return dict(sorted(steps.items()))


def to_wandb(run, config, arguments):
    os.environ["WANDB_MODE"] = "offline"
    import wandb

    tracked = wandb.init(
        dir=arguments.out,
        project=arguments.project,
        name=run.name,
        id=hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:16],
        config=config | {"env": read_json(run / "env.json")},
        settings=wandb.Settings(silent=True, disable_git=True, disable_code=True, x_disable_stats=True, console="off"),
    )
    for step, row in history(run).items():
        tracked.log(row, step=step)
    tracked.summary.update({f"exit/{key}": value for key, value in read_json(run / "exit.json").items()})
    tracked.finish()


def to_mlflow(run, config, arguments):
    # The file store needs no database; MLflow 3 asks for consent to it.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    client = MlflowClient(tracking_uri=arguments.out.resolve().as_uri())
    experiment = client.get_experiment_by_name(arguments.project)
    number = experiment.experiment_id if experiment else client.create_experiment(arguments.project)
    tracked = client.create_run(number, run_name=run.name).info.run_id
    written = int((run / "metrics.jsonl").stat().st_mtime * 1000)
    metrics = [
        Metric(name, float(value), written, step)
        for step, row in history(run).items()
        for name, value in row.items()
        if math.isfinite(value)
    ]
    parameters = [Param(key, str(value)) for key, value in config.items()]
    tags = [RunTag(f"exit.{key}", str(value)) for key, value in read_json(run / "exit.json").items()]
    tags += [RunTag(f"env.{key}", str(value)[:5000]) for key, value in read_json(run / "env.json").items()]
    # The limits of a single call are 1000 metrics and 100 parameters.
    for start in range(0, len(metrics), 1000):
        client.log_batch(tracked, metrics=metrics[start : start + 1000])
    for start in range(0, len(parameters), 100):
        client.log_batch(tracked, params=parameters[start : start + 100])
    client.log_batch(tracked, tags=tags[:100])
    client.set_terminated(tracked)


def runs_below(folder):
    if (folder / "metrics.jsonl").exists() and (folder / "config.toml").exists():
        return [folder]
    return sorted(path.parent for path in folder.rglob("metrics.jsonl") if (path.parent / "config.toml").exists())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", required=True, choices=("wandb", "mlflow"), help="whose format to write")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write below")
    parser.add_argument("--project", default="vim-train", help="project or experiment (default: vim-train)")
    parser.add_argument("runs", nargs="+", type=pathlib.Path, help="folders of runs, or folders that hold some")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    export, package = {"wandb": (to_wandb, "wandb"), "mlflow": (to_mlflow, "mlflow-skinny")}[arguments.to]
    count = 0
    for folder in arguments.runs:
        found = runs_below(folder)
        if not found:
            sys.exit(f"error: {folder} holds no run: name a folder with config.toml and metrics.jsonl")
        for run in found:
            config = dict(flat(tomllib.loads((run / "config.toml").read_text())))
            try:
                export(run, config, arguments)
            except ModuleNotFoundError as error:
                sys.exit(f"error: {error.name} is missing: python3 -m pip install {package}")
            count += 1
            print(f"{run}: exported")
    print(f"{count} {'run' if count == 1 else 'runs'} in {arguments.out}")


if __name__ == "__main__":
    main()

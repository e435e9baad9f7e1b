#!/usr/bin/env bash
# vim-train on LibTorch: builds it against PyPI's torch 2.9.0, checks the operations, trains 20 steps on the processor, and
# trains, evaluates and predicts with each task. A part of .ci/full.
#
#   scripts/tch_check.sh                 makes a virtual environment in target/tch-venv and installs torch 2.9.0 there: several GB
#   scripts/tch_check.sh --venv DIR      another place; one that has torch 2.9.0 already is used as it is
#   scripts/tch_check.sh --release       an optimised build
#
# Needs Python 3.10 to 3.14, a C++ compiler, and PyPI. It ends with "tch: all good", or with exit code 1 and the error.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; }
fail() { echo "error: $1" >&2; exit "${2:-1}"; }

target=${CARGO_TARGET_DIR:-$PWD/target}
venv=$target/tch-venv profile=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage | grep -v '^set'; exit 0 ;;
    --venv) [ $# -ge 2 ] || fail "--venv needs a folder" 2; venv=$2; shift 2 ;;
    --release) profile=(--release); shift ;;
    *) fail "unknown argument $1; --help says what there is" 2 ;;
  esac
done

if ! [ -x "$venv/bin/python3" ]; then
  python3 -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 15))' || fail "torch 2.9.0 has wheels for Python 3.10 to 3.14"
  python3 -m venv "$venv"
fi
python=$venv/bin/python3
# torch-sys 0.22 takes exactly this version.
version=$("$python" -c 'import torch; print(torch.__version__.split("+")[0])' 2>/dev/null || true)
[ "$version" = 2.9.0 ] || "$venv/bin/pip" install torch==2.9.0

# What builds it: the Python whose torch is meant, first in PATH. What runs it: the folder of its libraries.
export LIBTORCH_USE_PYTORCH=1 PATH="$venv/bin:$PATH"
libraries=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent / "lib")')
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

cargo build --locked -p vim-train --features tch "${profile[@]}"
vim_train=$target/debug/vim-train
[ "${#profile[@]}" -eq 0 ] || vim_train=$target/release/vim-train

"$vim_train" verify --device tch --quick

runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
"$vim_train" train configs/quickstart.toml --steps 20 --set devices.backend=tch --set run.root="$runs" --set run.name=tch --set log.every=1st
"$python" - "$runs/tch/metrics.jsonl" <<'PYTHON'
import json, sys
losses = [row["loss"] for row in map(json.loads, open(sys.argv[1])) if "grad_norm" in row]
first, last = sum(losses[:3]) / 3, sum(losses[-3:]) / 3
print(f"tch: loss {first:.4f} in steps 1 to 3, {last:.4f} in steps 18 to 20")
if len(losses) != 20 or not last < first - 0.05:
    sys.exit("error: the loss of 20 steps did not fall")
PYTHON
cargo test --locked -p vim-train --features tch "${profile[@]}" --test it backends::
echo "tch: all good"

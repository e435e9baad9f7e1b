#!/usr/bin/env bash
# vim_scan on a CPU: builds its wheel, installs it beside PyTorch, and runs its tests.
#
#   scripts/python_check.sh                     in ~/.cache/vim-train/tools, with PyTorch from PyPI (7 GB, once)
#   PYTHON=path scripts/python_check.sh         with a Python that has torch and pytest; the wheel goes into a folder beside it
#   scripts/python_check.sh --cuda              with its CUDA kernels, whose tests need a GPU
#
# Needs Rust, a C compiler and Python 3.10 or newer with venv.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=2.9.0
features=()
[ "${1:-}" != --cuda ] || features=(--features cuda)

if [ -z "${PYTHON:-}" ]; then
  environment=$HOME/.cache/vim-train/tools/torch-$torch
  [ -x "$environment/bin/pytest" ] || { python3 -m venv "$environment" && "$environment/bin/pip" install --quiet "torch==$torch" numpy pytest; }
  PYTHON=$environment/bin/python
fi
cargo build --release --locked --package vim-scan-py "${features[@]}"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
wheel=$(scripts/pack_wheel.py "${CARGO_TARGET_DIR:-target}/release/lib_native.so" -o "$scratch")
python3 -m zipfile -e "$wheel" "$scratch/site"
PYTHONPATH=$scratch/site "$PYTHON" -m pytest --quiet -p no:cacheprovider crates/vim-scan-py/tests

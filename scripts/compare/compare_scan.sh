#!/usr/bin/env bash
# The scan of vim-train and of mamba-ssm on one GPU, at the same shapes, side by side.
#
#   scripts/compare/compare_scan.sh                                        Vim-Ti's shape in f32 and bf16
#   scripts/compare/compare_scan.sh --dtype bf16 128x384x197 8x384x1025    BxDxL, as many as wanted
#   scripts/compare/compare_scan.sh --methods zoh,bilinear --device 1 --trials 50
#   scripts/compare/compare_scan.sh --out measured                         keeps measured/ours.json and theirs.jsonl
#
# Needs a CUDA GPU; vim-train built with --features cuda (VIM_TRAIN=path, else target/release/vim-train, else
# the one in PATH); and Python (PYTHON=path, else python3) with torch and mamba-ssm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; }
fail() { echo "error: $1" >&2; exit "${2:-1}"; }

dtype=all device=0 trials=30 methods=() out='' shapes=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --dtype | --device | --trials | --methods | --out)
      [ $# -ge 2 ] || fail "$1 needs a value" 2
      case "$1" in
        --dtype) dtype=$2 ;;
        --device) device=$2 ;;
        --trials) trials=$2 ;;
        --methods) methods=(--methods "$2") ;;
        --out) out=$2 ;;
      esac
      shift 2 ;;
    [1-9]*x*x*) shapes+=(--shape "$1"); shift ;;
    *) fail "unknown argument $1; --help says what there is" 2 ;;
  esac
done
[ "${#shapes[@]}" -gt 0 ] || shapes=(--shape 128x384x197)

python=${PYTHON:-python3}
vim_train=${VIM_TRAIN:-}
if [ -z "$vim_train" ]; then
  vim_train=$here/../../target/release/vim-train
  [ -x "$vim_train" ] || vim_train=$(command -v vim-train) ||
    fail "no vim-train: cargo build --release --features cuda, or set VIM_TRAIN" 69
fi
if [ -z "$out" ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
mkdir -p "$out"

# The peer first: what is missing there shows in a second.
"$python" "$here/peer_scan.py" "${shapes[@]}" --dtype "$dtype" --device "$device" --trials "$trials" >"$out/theirs.jsonl"
"$vim_train" profile scan "${shapes[@]}" --dtype "$dtype" --device "cuda:$device" --trials "$trials" \
  --implementations kernel ${methods[@]+"${methods[@]}"} --json >"$out/ours.json"
"$python" "$here/join_scan.py" "$out/ours.json" "$out/theirs.jsonl"

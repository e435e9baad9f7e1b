#!/usr/bin/env bash
# Images a second against resolution on one GPU: Vim-Ti of all methods, and timm's DeiT-Ti eager and compiled, in bf16.
#
#   scripts/compare/compare_resolution.sh --out measured             224 to 2048 px, inference and training
#   scripts/compare/compare_resolution.sh --out measured --pixels 224,1024 --mode infer --methods zoh
#
# A step has 25 000 to 33 000 tokens at every resolution. --out keeps ours-PX.json and theirs.jsonl; then
#   scripts/compare/draw_resolution.py --from measured               draws them into the documentation
#
# Needs a CUDA GPU; vim-train built with --features cuda (VIM_TRAIN=path, else target/release/vim-train, else the one in
# PATH); and Python (PYTHON=path, else python3) with torch and timm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '/^set/d'; }
fail() { echo "error: $1" >&2; exit "${2:-1}"; }

pixels=224,512,1024,1536,2048 mode=both methods=all warmup=5 steps=20 out=''
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --pixels | --mode | --methods | --warmup | --steps | --out)
      [ $# -ge 2 ] || fail "$1 needs a value" 2
      case "$1" in
        --pixels) pixels=$2 ;;
        --mode) mode=$2 ;;
        --methods) methods=$2 ;;
        --warmup) warmup=$2 ;;
        --steps) steps=$2 ;;
        --out) out=$2 ;;
      esac
      shift 2 ;;
    *) fail "unknown argument $1; --help says what there is" 2 ;;
  esac
done
[ -n "$out" ] || fail 'name a folder for what is measured: --out DIR' 2
vim_train=${VIM_TRAIN:-}
if [ -z "$vim_train" ]; then
  vim_train=$here/../../target/release/vim-train
  [ -x "$vim_train" ] || vim_train=$(command -v vim-train) ||
    fail "no vim-train: cargo build --release --features cuda, or set VIM_TRAIN" 69
fi
mkdir -p "$out"

: > "$out/theirs.jsonl"
IFS=, read -ra sides <<<"$pixels"
for side in "${sides[@]}"; do
  case "$side" in '' | 0* | *[!0-9]*) fail "--pixels takes numbers, not '$side'" 2 ;; esac
  [ "$side" -ge 16 ] || fail "--pixels $side: a patch has 16" 2
  tokens=$(( (side / 16) * (side / 16) ))
  batch=$(( 32768 / tokens ))
  [ "$batch" -gt 0 ] || batch=1
  [ "$side" != 224 ] || batch=128
  "${PYTHON:-python3}" "$here/peer_vim.py" --model deit_tiny --way eager,compiled --mode "$mode" --image-size "$side" \
    --batch "$batch" --warmup "$warmup" --steps "$steps" >> "$out/theirs.jsonl"
  "$vim_train" bench "$here/../../configs/vim_tiny_imagenet.toml" --device cuda --mode "$mode" --methods "$methods" \
    --image-size "$side" --batch "$batch" --warmup "$warmup" --steps "$steps" --set train.precision=bf16 --force \
    -o "$out/ours-$side.json"
done

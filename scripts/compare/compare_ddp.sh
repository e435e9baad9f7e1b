#!/usr/bin/env bash
# A training step on one GPU and on several: `vim-train bench scaling` and PyTorch's DistributedDataParallel, joined.
#
#   scripts/compare/compare_ddp.sh                                              Vim-Ti and DeiT-Ti on 1 and 2 GPUs, batch 128
#   scripts/compare/compare_ddp.sh --size small --gpus 1,2,4,8 --batch 128,512 --out measured
#   scripts/compare/compare_ddp.sh --peers vim --dtype f32 --steps 100
#
# --batch is images on each GPU. --set goes to ours alone. --out keeps measured/ours.json, theirs.jsonl and table.md.
#
# Needs CUDA GPUs; vim-train built with --features cuda (VIM_TRAIN=path, else target/release/vim-train, else the one in
# PATH); and Python (PYTHON=path, else python3) with torch, mamba-ssm and timm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '/^set/d'; }
fail() { echo "error: $1" >&2; exit "${2:-1}"; }

size=tiny gpus=1,2 batches=128 dtype=bf16 peers=vim,deit warmup=10 steps=50 out='' sets=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --size | --gpus | --batch | --dtype | --peers | --warmup | --steps | --out | --set)
      [ $# -ge 2 ] || fail "$1 needs a value" 2
      case "$1" in
        --size) size=$2 ;;
        --gpus) gpus=$2 ;;
        --batch) batches=$2 ;;
        --dtype) dtype=$2 ;;
        --peers) peers=$2 ;;
        --warmup) warmup=$2 ;;
        --steps) steps=$2 ;;
        --out) out=$2 ;;
        --set) sets+=(--set "$2") ;;
      esac
      shift 2 ;;
    *) fail "unknown argument $1; --help says what there is" 2 ;;
  esac
done
case "$dtype" in f32 | tf32 | bf16) ;; *) fail "--dtype $dtype is none of f32, tf32, bf16" 2 ;; esac
config=$here/../../configs/vim_${size}_imagenet.toml
[ -f "$config" ] || fail "--size $size: there is no configs/vim_${size}_imagenet.toml" 2
IFS=, read -ra worlds <<<"$gpus"
IFS=, read -ra names <<<"$peers"
models=$(printf ",%s_$size" "${names[@]}")

python=${PYTHON:-python3}
vim_train=${VIM_TRAIN:-}
if [ -z "$vim_train" ]; then
  vim_train=$here/../../target/release/vim-train
  [ -x "$vim_train" ] || vim_train=$(command -v vim-train) ||
    fail "no vim-train: cargo build --release --features cuda, or set VIM_TRAIN" 69
fi
"$python" -c 'import torch' 2>/dev/null || fail "$python has no torch: set PYTHON, or pip install torch timm mamba-ssm"
if [ -z "$out" ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
mkdir -p "$out"

# The peer first: what is missing there shows in a second.
: >"$out/theirs.jsonl"
for world in "${worlds[@]}"; do
  "$python" -m torch.distributed.run --standalone --nproc-per-node "$world" "$here/peer_ddp.py" --model "${models#,}" \
    --batch "$batches" --dtype "$dtype" --warmup "$warmup" --steps "$steps" >>"$out/theirs.jsonl"
done
"$vim_train" bench scaling "$config" --device cuda --gpus "$gpus" --batch "$batches" --warmup "$warmup" --steps "$steps" \
  --set "train.precision=$dtype" ${sets[@]+"${sets[@]}"} --force -o "$out/ours.json" >&2
"$python" "$here/peer_ddp.py" --table "$out/ours.json" "$out/theirs.jsonl" | tee "$out/table.md"

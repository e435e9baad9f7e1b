#!/usr/bin/env bash
# Whole models on one GPU: `vim-train bench` and PyTorch (mamba-ssm's Vim, timm's DeiT), one after the other, joined.
#
#   scripts/compare/compare_train.sh                                            Vim-Ti and DeiT-Ti, 224 px, batch 128, f32
#   scripts/compare/compare_train.sh --size tiny,small --batch 64,256 --mode train
#   scripts/compare/compare_train.sh --image-size 224,1248 --batch 8 --mode infer --methods zoh,bilinear --device 1
#   scripts/compare/compare_train.sh --batch 128,512 --set ssm.series=taylor --peers vim --steps 50 --out measured
#
# --dtype f32|tf32|bf16 is train.precision on our side; on theirs bf16 is autocast, tf32 lets products round as
# convolutions do by PyTorch's default. --way says how the peers' steps are launched: eager,best by default, where best
# is a CUDA graph of Vim and a compiled DeiT. --set goes to ours alone. --out keeps measured/ours-*.json, theirs.jsonl
# and table.md. Each runs in a process of its own: neither holds memory of the GPU while the other runs.
#
# Needs a CUDA GPU; vim-train built with --features cuda (VIM_TRAIN=path, else target/release/vim-train, else
# the one in PATH); and Python (PYTHON=path, else python3) with torch, mamba-ssm and timm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '/^set/d'; }
fail() { echo "error: $1" >&2; exit "${2:-1}"; }

sizes=tiny batches=128 mode=both dtype=f32 image_sizes=224 methods=zoh peers=vim,deit
device=0 warmup=10 steps=30 ways=eager,best out='' sets=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --size | --batch | --mode | --dtype | --image-size | --methods | --peers | --way | --device | --warmup | --steps | --out | --set)
      [ $# -ge 2 ] || fail "$1 needs a value" 2
      case "$1" in
        --size) sizes=$2 ;;
        --batch) batches=$2 ;;
        --mode) mode=$2 ;;
        --dtype) dtype=$2 ;;
        --image-size) image_sizes=$2 ;;
        --methods) methods=$2 ;;
        --peers) peers=$2 ;;
        --way) ways=$2 ;;
        --device) device=$2 ;;
        --warmup) warmup=$2 ;;
        --steps) steps=$2 ;;
        --out) out=$2 ;;
        --set) sets+=(--set "$2") ;;
      esac
      shift 2 ;;
    *) fail "unknown argument $1; --help says what there is" 2 ;;
  esac
done
case "$mode" in train | infer | both) ;; *) fail "--mode $mode is none of train, infer, both" 2 ;; esac
case "$dtype" in
  f32) ;;
  tf32 | bf16) sets+=(--set "train.precision=$dtype") ;;
  *) fail "--dtype $dtype is none of f32, tf32, bf16" 2 ;;
esac
IFS=, read -ra size_list <<<"$sizes"
IFS=, read -ra pixel_list <<<"$image_sizes"
models=''
for size in "${size_list[@]}"; do
  [ -f "$here/../../configs/vim_${size}_imagenet.toml" ] || fail "--size $size: there is no configs/vim_${size}_imagenet.toml" 2
  IFS=, read -ra peer_list <<<"$peers"
  for peer in "${peer_list[@]}"; do models=${models:+$models,}${peer}_$size; done
done

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
"$python" "$here/peer_vim.py" --model "$models" --mode "$mode" --image-size "$image_sizes" --batch "$batches" \
  --dtype "$dtype" --way "$ways" --warmup "$warmup" --steps "$steps" --device "$device" >"$out/theirs.jsonl"
ours=()
for size in "${size_list[@]}"; do
  for pixels in "${pixel_list[@]}"; do
    file=$out/ours-$size-$pixels.json
    "$vim_train" bench "$here/../../configs/vim_${size}_imagenet.toml" --device "cuda:$device" --mode "$mode" \
      --batch "$batches" --methods "$methods" --image-size "$pixels" --warmup "$warmup" --steps "$steps" \
      ${sets[@]+"${sets[@]}"} --force -o "$file" >&2
    ours+=("$file")
  done
done
"$python" "$here/join_train.py" "${ours[@]}" "$out/theirs.jsonl" | tee "$out/table.md"

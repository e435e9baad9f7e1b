#!/usr/bin/env bash
# The checks that need a GPU, in parts with a time limit each.
#
#   cargo build --release --features cuda && scripts/gpu_check.sh target/release/vim-train --out DIR
#   scripts/gpu_check.sh BINARY --out DIR verify loop        these parts alone
#
#   start        time until the first step: cold, the next process, after `warmup`; with empty caches of kernels
#   doctor       the machine, and the seven checks of performance
#   golden       gradients against arrays of the original, within the tolerances of a CPU
#   verify       every method and operation in f32 and bf16 against loops in f64, in 14 processes
#   loop         1000 steps of Vim-Ti at 224 px with the whole recipe; beside it the same step alone
#   methods      a training step of every method, alone
#   recompute    Vim-Ti with a batch of 512 and `train.recompute`
#   precisions   runs to their end in f32 on the CPU, f32 and bf16 on the GPU: losses and accuracy within bands
#   storm        12 SIGKILLs of a run on the GPU: the same bytes as undisturbed?
#   ranks        2 shards on one rank and on two, 4 on one, two and four: the same bytes for every method in bf16 and f32?
#                A machine with one GPU has its ranks share it, which NCCL then connects by sockets: right, but slow
#   memory       a batch that fits no GPU: one line that says what would fit, exit code 71
#   bench        inference of every method, batches 1 to 512, and the tables of `bench compare`
#
# DIR gets a log of each part; the last lines say which passed. GPU=cuda:1 takes another GPU.
# Exit code: 0 all passed, 1 some did not.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$here/scripts/gpu_check.sh" | grep -v '^set'; }
refuse() { echo "error: $1" >&2; exit 2; }

parts=() binary='' out=''
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --out) [ $# -ge 2 ] || refuse '--out needs a folder'; out=$2; shift 2 ;;
    -*) refuse "unknown argument $1; --help says what there is" ;;
    *) if [ -z "$binary" ]; then binary=$1; else parts+=("$1"); fi; shift ;;
  esac
done
[ -x "$binary" ] || refuse 'name a vim-train binary, as target/release/vim-train'
[ -n "$out" ] || refuse 'name a folder for the logs: --out DIR'
[ "${#parts[@]}" -gt 0 ] || parts=(start doctor golden verify loop methods recompute precisions storm ranks memory bench)
binary=$(realpath "$binary")
mkdir -p "$out"
out=$(realpath "$out")
cd "$here" || exit
gpu=${GPU:-cuda:0}
# All parts see it alone, as number 0.
if [ "$gpu" != cuda:0 ]; then export CUDA_VISIBLE_DEVICES=${gpu#cuda:}; gpu=cuda:0; unset GPU; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tiny=(configs/vim_tiny_imagenet.toml --set data.dataset=shapes --set train.precision=bf16 --set devices.backend=cuda)
shapes=(--set data.shapes.image_size=224 --set data.shapes.train=12800 --set data.shapes.val=256 --set data.shapes.test=256 --set train.batch_size=128 --set "run.root=$work/runs")

start() {
  local one=("$binary" train "${tiny[@]}" "${shapes[@]}" --steps 1 --set)
  export CUDA_CACHE_PATH="$work/first"
  time "${one[@]}" run.name=cold || return
  time "${one[@]}" run.name=second || return
  export CUDA_CACHE_PATH="$work/second"
  time "$binary" warmup "${tiny[@]}" "${shapes[@]}" || return
  time "${one[@]}" run.name=warm
}

doctor() { "$binary" doctor --device "$gpu" --performance; }

golden() {
  local fixtures=crates/vim-model/tests/fixtures model
  printf '[model]\nimage_size = 64\nd_model = 64\ndepth = 4\n' > "$work/a_mid.toml"
  printf '[model]\nimage_size = 64\nd_model = 64\ndepth = 3\nclass_token = "head"\n' > "$work/d_headcls.toml"
  printf '[model]\nimage_size = 64\nd_model = 64\ndepth = 3\nbimamba = "v1"\n' > "$work/h_v1.toml"
  for model in a_mid d_headcls h_v1; do
    "$binary" eval-golden --weights "$fixtures/$model.pth" --arrays "$fixtures/$model.npz" --config "$work/$model.toml" \
      --grads --device "$gpu" || return
  done
}

verify() {
  local shard shards=14 failed=0 pids=()
  for shard in $(seq "$shards"); do
    timeout 400 "$binary" verify --device "$gpu" --quick --dtype all --shard "$shard/$shards" > "$out/verify-$shard.log" 2>&1 &
    pids+=($!)
  done
  for shard in $(seq "$shards"); do
    wait "${pids[shard - 1]}" || { echo "shard $shard: exit code $?"; failed=1; }
    tail -n 1 "$out/verify-$shard.log"
  done
  return "$failed"
}

loop() {
  "$binary" train "${tiny[@]}" "${shapes[@]}" --steps 1000 --set train.epochs=20 --set train.eval_every=10ep --set log.every=100st \
    --set checkpoint.every=5min --set run.name=loop || return
  cat "$work/runs/loop/timing.jsonl"
  "$binary" profile train "${tiny[@]}" --batch 128 --steps 50
}

methods() {
  local method
  for method in zoh foh bilinear poly highorder rk4; do
    "$binary" profile train "${tiny[@]}" --batch 128 --steps 30 --set "model.discretization=$method" || return
  done
}

recompute() { "$binary" profile train "${tiny[@]}" --batch 512 --steps 20 --set train.recompute=true; }

precisions() {
  local jobs
  jobs=$(( $(nproc) / 2 < 6 ? $(nproc) / 2 : 6 ))
  python3 scripts/compare_precisions.py "$binary" --gpu cuda --cpu-jobs "$(( jobs > 0 ? jobs : 1 ))" --gpu-jobs 2 --threads 2
}

ranks() {
  local gpus small one precision method shards world name failed=0
  gpus=$(nvidia-smi --list-gpus | wc -l)
  [ "$gpus" -ge 4 ] || export VIM_TRAIN_SHARE_GPU=1
  small=(--set data.shapes.image_size=64 --set model.image_size=64 --set data.shapes.train=640 --set data.shapes.val=64
    --set data.shapes.test=64 --set train.batch_size=32 --set train.epochs=5 --set train.ema=0.9 --set log.every=5st
    --set "run.root=$work/ranks")
  for precision in bf16 f32; do
    for method in zoh foh bilinear poly highorder rk4; do
      shards=2
      if [ "$method" = zoh ] || [ "$method" = poly ]; then shards=4; fi
      for world in 1 2 4; do
        [ "$world" -le "$shards" ] || continue
        name="$precision-$method-$world"
        one=("$binary" train "${tiny[@]}" "${small[@]}" --set "train.precision=$precision" --set "model.discretization=$method")
        [ "$world" = 1 ] || one+=(--ranks "$world")
        "${one[@]}" --set "train.shards=$shards" --set "run.name=$name" > "$out/ranks-$name.log" 2>&1 ||
          { echo "$name: exit code $?"; tail -n 3 "$out/ranks-$name.log"; failed=1; continue; }
        grep -E '^(speed|time) ' "$out/ranks-$name.log" | tr -s '\n ' ' '
        same "$work/ranks/$precision-$method-1" "$work/ranks/$name" && echo "$name of $shards shards: the same bytes" ||
          { echo "$name of $shards shards: OTHER BYTES"; failed=1; }
      done
    done
  done
  return "$failed"
}

# Whether two runs left the same results and the same last checkpoint.
same() {
  local file
  cmp "$1/metrics.jsonl" "$2/metrics.jsonl" || return
  for file in "$1"/checkpoints/step-00000100/*; do cmp "$file" "$2/checkpoints/step-00000100/${file##*/}" || return; done
}

storm() { SEED=7 scripts/kill_storm.sh "$binary" --kills 12 --epochs 160 --set devices.backend=cuda; }

memory() {
  "$binary" train configs/vim_base_imagenet.toml "${tiny[@]:1}" "${shapes[@]}" --set train.batch_size=2048 --set data.shapes.train=4096 \
    --steps 1 --set run.name=memory
  local code=$?
  echo "exit code $code"
  [ "$code" = 71 ]
}

bench() {
  "$binary" bench configs/vim_tiny_imagenet.toml --device "$gpu" --mode infer --methods all --set train.precision=bf16 --force -o "$out/bench.json" &&
    "$binary" bench compare "$out/bench.json" -o "$out/compared"
}

# The seconds that a part may take.
limit() {
  case "$1" in
    start | doctor | verify | loop) echo 420 ;;
    golden | memory | recompute) echo 120 ;;
    methods | storm) echo 300 ;;
    precisions | bench | ranks) echo 580 ;;
    *) refuse "no part is called $1; --help has them" ;;
  esac
}
for part in "${parts[@]}"; do limit "$part" > /dev/null || exit 2; done

# A part is this script again, so that its time limit applies.
if [ "${GPU_CHECK_PART:-}" ]; then "$GPU_CHECK_PART"; exit; fi
summary=() status=0
for part in "${parts[@]}"; do
  began=$SECONDS
  GPU_CHECK_PART=$part timeout --kill-after 10 "$(limit "$part")" "$here/scripts/gpu_check.sh" "$binary" --out "$out" "$part" > "$out/$part.log" 2>&1
  code=$?
  [ "$code" = 0 ] || status=1
  summary+=("$(printf '%-12s exit code %3s after %4s s, %s' "$part" "$code" "$((SECONDS - began))" "$out/$part.log")")
  echo "== $part"
  tail -n 40 "$out/$part.log"
done
printf '%s\n' '' "${summary[@]}"
exit "$status"

#!/usr/bin/env bash
# The checks that need a GPU, in parts with a time limit each.
#
#   cargo build --release --features cuda && scripts/gpu_check.sh target/release/vim-train --out DIR
#   scripts/gpu_check.sh BINARY --out DIR verify loop        these parts alone
#
#   start        time until the first step: cold, the next process, after `warmup`; with empty caches of kernels
#   doctor       the machine, and the seven checks of performance
#   golden       arrays of the originals: classifiers, and the segmenter, detectors and operations of vim-golden, within
#                the tolerances of a CPU. It needs vim-golden beside BINARY, or VIM_GOLDEN
#   verify       every method and operation in f32 and bf16 against loops in f64, in 14 processes; nothing that this GPU has
#                may be skipped. SHARD=2/3 takes the second third of the checks
#   loop         1000 steps of Vim-Ti at 224 px with the whole recipe; beside it the same step alone
#   methods      a training step of every method, alone
#   recompute    Vim-Ti with a batch of 512 and `train.recompute`
#   graphs       the same bytes with `devices.graph` on and off, and on, stopped halfway and resumed without; with each
#                `train.recompute`: every method, segmentation, parts, shards, and 20 steps at the sizes of the benchmarks
#   precisions   runs to their end in f32 on the CPU, f32 and bf16 on the GPU: losses and accuracy within bands
#   storm        12 SIGKILLs of a run on the GPU: the same bytes as undisturbed?
#   ranks        the parts below that begin with ranks-. Where there are fewer GPUs than ranks, ranks share them, and NCCL
#                connects them by sockets: right, but slow, and no figure of speed. What a part cannot show it says: NOT RUN
#   ranks-sums   sums over all GPUs, over two, three and four ranks: right to the bit, and how fast
#   ranks-bf16   2 shards on one rank and on two, 4 on one, two and four: the same bytes for every method, 80 steps?
#   ranks-f32    the same in f32
#   ranks-storm  10 SIGKILLs of a rank, then of the supervisor, SIGTERM, SIGSTOP and a late start: the same bytes?
#   ranks-speed  Vim-Ti with 128 and 512 images on each GPU, Vim-S with 128: efficiency, memory, the share of the exchange
#   ranks-ddp    the same of PyTorch's DistributedDataParallel, where python3 has torch and mamba-ssm
#   ranks-nodes  two supervisors as of two nodes, with a GPU each, over NCCL's sockets: the same bytes as one rank?
#   memory       a batch that fits no GPU: one line that says what would fit, exit code 71
#   sanitize     the parts memcheck, racecheck, synccheck and initcheck: our kernels of `verify --quick`,
#                and those of a training step of each method, under these tools of NVIDIA's compute-sanitizer.
#                One that refuses the GPU, or is not there, fails and says NOT RUN. Kernels load and run many
#                times slower under them: METHODS="zoh foh" takes these methods alone, SHARD=2/8 the second eighth of the
#                checks and of the methods' steps, and LIMIT=580 gives each tool that many seconds, not an hour: eight calls
#                with SHARD=1/8 to 8/8 are all of it
#   bench        inference of every method, batches 1 to 512, and the tables of `bench compare`
#
# Without names all parts run but `sanitize`. DIR gets a log of each part; the last lines say which passed. GPU=cuda:1 takes another GPU.
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
golden=${VIM_GOLDEN:-$(dirname "$binary")/vim-golden}
[ "${#parts[@]}" -gt 0 ] || parts=(start doctor golden verify loop methods recompute graphs precisions storm ranks memory bench)
all=()
for part in "${parts[@]}"; do
  case "$part" in
    ranks) all+=(ranks-sums ranks-bf16 ranks-f32 ranks-storm ranks-speed ranks-ddp ranks-nodes) ;;
    sanitize) all+=(memcheck racecheck synccheck initcheck) ;;
    *) all+=("$part") ;;
  esac
done
parts=("${all[@]}")
binary=$(realpath "$binary")
all_methods=$("$binary" methods --json | sed -n 's/.*"method": *"\([a-z0-9_]*\)".*/\1/p')
mkdir -p "$out"
out=$(realpath "$out")
cd "$here" || exit
gpu=${GPU:-cuda:0}
# All parts see it alone, as number 0.
if [ "$gpu" != cuda:0 ]; then export CUDA_VISIBLE_DEVICES=${gpu#cuda:}; gpu=cuda:0; unset GPU; fi
# The part of the checks that verify and the sanitizers take.
[[ ${SHARD:=1/1} =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ ]] && [ "${BASH_REMATCH[1]}" -le "${BASH_REMATCH[2]}" ] ||
  refuse "SHARD=$SHARD is no part such as 1/4, from 1/N to N/N"
shard_index=${BASH_REMATCH[1]} shard_count=${BASH_REMATCH[2]}
[[ ${LIMIT:=3600} =~ ^[1-9][0-9]*$ ]] && [ "$LIMIT" -gt 60 ] || refuse "LIMIT=$LIMIT is no number of seconds above 60"
export SHARD LIMIT
# Process PROCESS of PROCESSES that share that part.
shard() { echo "$(( (shard_index - 1) * $2 + $1 ))/$(( shard_count * $2 ))"; } # PROCESS PROCESSES

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# On one GPU, whose batch is one shard.
tiny=(configs/vim_tiny_imagenet.toml --set data.dataset=shapes --set train.precision=bf16 --set devices.backend=cuda --set train.shards=1)
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
  [ -x "$golden" ] || { echo "NOT RUN: there is no $golden: cargo build --release -p vim-golden"; return 1; }
  local fixtures=crates/vim-model/tests/fixtures model
  printf '[model]\nimage_size = 64\nd_model = 64\ndepth = 4\n' > "$work/a_mid.toml"
  printf '[model]\nimage_size = 64\nd_model = 64\ndepth = 3\nclass_token = "head"\n' > "$work/d_headcls.toml"
  printf '[model]\nimage_size = 64\nd_model = 64\ndepth = 3\nbimamba = "v1"\n' > "$work/h_v1.toml"
  for model in a_mid d_headcls h_v1; do
    "$golden" eval-golden --weights "$fixtures/$model.pth" --arrays "$fixtures/$model.npz" --config "$work/$model.toml" \
      --grads --device "$gpu" || return
  done
  fixtures=crates/vim-golden/tests/fixtures
  for model in "$fixtures"/*/*.pth; do
    model=${model%.pth}
    "$golden" eval-golden --weights "$model.pth" --arrays "$model.npz" --variant "$model.json" --grads \
      --device "$gpu" || return
    "$golden" eval-golden --weights "$model.pth" --arrays "$model.npz" --variant "$model.json" --grads \
      --dtype bf16 --device "$gpu" || return
  done
  for model in seg det; do
    "$golden" eval-golden --operations "$fixtures/$model" --device "$gpu" || return
  done
}

verify() {
  local process processes=14 failed=0 pids=()
  for process in $(seq "$processes"); do
    timeout 400 "$binary" verify --device "$gpu" --quick --dtype all --shard "$(shard "$process" "$processes")" \
      > "$out/verify-$process.log" 2>&1 &
    pids+=($!)
  done
  for process in $(seq "$processes"); do
    wait "${pids[process - 1]}" || { echo "process $process: exit code $?"; failed=1; }
    tail -n 1 "$out/verify-$process.log"
    # These GPUs have bf16 and our kernels; only what no device has may be left out.
    if grep 'checks in .* skipped' "$out/verify-$process.log" | grep -v 'full_scan takes bf16 in its kernel alone'; then failed=1; fi
  done
  return "$failed"
}

loop() {
  "$binary" train "${tiny[@]}" "${shapes[@]}" --steps 1000 --set train.epochs=20 --set train.eval_every=10ep --set log.every=100st \
    --set checkpoint.every=5min --set run.name=loop || return
  cat "$work/runs/loop/timing.jsonl"
  "$binary" bench phases "${tiny[@]}" --batch 128 --steps 50
}

methods() {
  local method
  for method in $all_methods; do
    "$binary" bench phases "${tiny[@]}" --batch 128 --steps 30 --set "model.discretization=$method" || return
  done
}

recompute() { "$binary" bench phases "${tiny[@]}" --batch 512 --steps 20 --set train.recompute=states; }

# Runs that must leave the same bytes, and how many of their steps were replays.
graphs() {
  local method failed=0 pids=()
  mixed=(--set train.ema=0.99 --set model.drop_path=0.1 --set model.dropout=0.1 --set train.eval_every=40st)
  for method in $all_methods; do
    graphs_of "$method" 100 configs/quickstart.toml "${mixed[@]}" --set "model.discretization=$method" & pids+=($!)
  done
  graphs_of parts 100 configs/quickstart.toml "${mixed[@]}" --set train.accumulate=2 & pids+=($!)
  graphs_of shards 100 configs/quickstart.toml "${mixed[@]}" --set train.shards=2 & pids+=($!)
  graphs_of segmentation 100 configs/segment_shapes.toml & pids+=($!)
  wait "${pids[@]}" || failed=1
  graphs_of tiny-128 20 "${tiny[@]}" "${shapes[@]}" || failed=1
  graphs_of tiny-512 20 "${tiny[@]}" "${shapes[@]}" --set train.batch_size=512 || failed=1
  graphs_of small-256 20 configs/vim_small_imagenet.toml "${tiny[@]:1}" "${shapes[@]}" --set train.batch_size=256 || failed=1
  graphs_of 32-px 20 configs/vim_tiny_cifar100.toml --set data.dataset=shapes --set train.batch_size=128 || failed=1
  ! grep -h 'OTHER\|exit code' "$out"/graphs-*.log || failed=1
  return "$failed"
}
graphs_of() { # NAME STEPS CONFIG...
  local name=$1 steps=$2 one kind
  shift 2
  one=("$binary" train "$@" --set devices.backend=cuda --set train.precision=bf16 --set checkpoint.every=1000ep --set log.every=20st
    --set "run.root=$work/graphs")
  {
    "${one[@]}" --steps "$steps" --set devices.graph=off --set train.recompute=inputs --set "run.name=$name-off"
    "${one[@]}" --steps "$steps" --set devices.graph=on --set "run.name=$name-on"
    "${one[@]}" --steps "$steps" --set devices.graph=on --set train.recompute=nothing --set "run.name=$name-nothing"
    "${one[@]}" --steps "$steps" --set devices.graph=on --set train.recompute=states --set "run.name=$name-states"
    "${one[@]}" --steps "$((steps / 2))" --set devices.graph=on --set "run.name=$name-resumed" &&
      "${one[@]}" --steps "$((steps - steps / 2))" --resume must --set devices.graph=off --set "run.name=$name-resumed"
  } > "$out/graphs-$name.txt" 2>&1
  for kind in on nothing states resumed; do
    if same "$work/graphs/$name-off" "$work/graphs/$name-$kind"; then echo "$name, $kind: the same bytes"; else
      echo "$name, $kind: OTHER BYTES"
      tail -n 3 "$out/graphs-$name.txt"
    fi
  done > "$out/graphs-$name.log" 2>&1
  sed -n 's/.*"graph_replays":\([0-9]*\).*/\1 replays of '"$steps"' steps/p' "$work/graphs/$name-on/timing.jsonl" | tail -n 1 >> "$out/graphs-$name.log"
  cat "$out/graphs-$name.log"
}

precisions() {
  local jobs
  jobs=$(( $(nproc) / 2 < 6 ? $(nproc) / 2 : 6 ))
  python3 scripts/compare/compare_precisions.py "$binary" --gpu cuda --cpu-jobs "$(( jobs > 0 ? jobs : 1 ))" --gpu-jobs 2 --threads 2
}

gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
[ -z "${CUDA_VISIBLE_DEVICES:-}" ] || gpus=$(tr -cd , <<< "$CUDA_VISIBLE_DEVICES," | wc -c)
# Runs a command for that number of ranks: with fewer GPUs, ranks share them.
with_ranks() { # RANKS COMMAND...
  local world=$1
  shift
  if [ "$world" -le "$gpus" ]; then "$@"; else VIM_TRAIN_SHARE_GPU=1 "$@"; fi
}
not_run() { echo "NOT RUN: $1"; }

ranks-sums() {
  local world failed=0
  if [ "$gpus" -ge 2 ]; then "$binary" doctor --device cuda --ranks || failed=1; else not_run "sums over several GPUs: there is $gpus"; fi
  # Two ranks have NCCL's own sum, more have ours; three divide nothing.
  for world in 2 3 4; do
    echo "-- $world ranks on $gpus GPUs"
    with_ranks "$world" "$binary" doctor --device cuda --ranks "$world" || failed=1
  done
  return "$failed"
}

small=(--set data.shapes.image_size=64 --set model.image_size=64 --set data.shapes.train=640 --set data.shapes.val=64
  --set data.shapes.test=64 --set train.batch_size=32 --set train.epochs=5 --set train.ema=0.9 --set log.every=5st
  --set "run.root=$work/ranks")
ranks_bytes() { # PRECISION: 80 steps, as a repeated augmentation takes 512 of the 640 images
  local method shards world name one failed=0
  for method in $all_methods; do
    shards=2
    [ "$method" != zoh ] || shards=4
    for world in 1 2 4; do
      [ "$world" -le "$shards" ] || continue
      name="$1-$method-$world"
      one=("$binary" train "${tiny[@]}" "${small[@]}" --set "train.precision=$1" --set "model.discretization=$method")
      [ "$world" = 1 ] || one+=(--ranks "$world")
      with_ranks "$world" "${one[@]}" --set "train.shards=$shards" --set "run.name=$name" > "$out/ranks-$name.log" 2>&1 ||
        { echo "$name: exit code $?"; tail -n 3 "$out/ranks-$name.log"; failed=1; continue; }
      grep -hE '^(NCCL|speed|time) ' "$out/ranks-$name.log" | tr -s '\n ' ' '
      if same "$work/ranks/$1-$method-1" "$work/ranks/$name"; then echo "$name of $shards shards: the same bytes"; else
        echo "$name of $shards shards: OTHER BYTES"
        failed=1
      fi
    done
  done
  [ "$gpus" -ge 4 ] || not_run "four ranks on a GPU each: there are $gpus"
  [ "$gpus" -ge 2 ] || not_run "two ranks on a GPU each: there is $gpus"
  return "$failed"
}
ranks-bf16() { ranks_bytes bf16; }
ranks-f32() { ranks_bytes f32; }

ranks-storm() {
  SEED=7 with_ranks 2 scripts/ranks_storm.sh "$binary" --kills 10 --ranks 2 --epochs 160 --only rank,supervisor,term,stop,late \
    --set devices.backend=cuda
}

# The numbers of GPUs that are there, up to eight.
worlds() { local world=1 list=1; while world=$((2 * world)) && [ "$world" -le "$gpus" ] && [ "$world" -le 8 ]; do list+=,$world; done; echo "$list"; }

ranks-speed() {
  local world list failed=0
  list=$(worlds)
  if [ "$list" = 1 ]; then
    not_run "efficiency: there is $gpus GPU; below two ranks share it, which shows memory and that it works"
    list=1,2
  fi
  world=${list##*,}
  with_ranks "$world" "$binary" bench scaling configs/vim_tiny_imagenet.toml --device cuda --gpus "$list" --batch 128,512 --steps 100 \
    --set train.precision=bf16 --force -o "$out/scaling-tiny.json" || failed=1
  with_ranks "$world" "$binary" bench scaling configs/vim_small_imagenet.toml --device cuda --gpus "$list" --batch 128 \
    --set train.precision=bf16 --force -o "$out/scaling-small.json" || failed=1
  with_ranks "$world" "$binary" bench phases "${tiny[@]}" --batch "$((128 * world))" --ranks "$world" --steps 50 || failed=1
  ! grep -ho '"error": .*' "$out"/scaling-*.json || failed=1
  return "$failed"
}

ranks-ddp() {
  local list
  list=$(worlds)
  [ "$list" != 1 ] || { not_run "DistributedDataParallel: there is $gpus GPU"; return 0; }
  "${PYTHON:-python3}" -c 'import torch, mamba_ssm, timm' 2> /dev/null || { not_run 'DistributedDataParallel: no torch, mamba-ssm or timm'; return 0; }
  VIM_TRAIN=$binary scripts/compare/compare_ddp.sh --size tiny --gpus "$list" --batch 128,512 --out "$out/ddp-tiny" &&
    VIM_TRAIN=$binary scripts/compare/compare_ddp.sh --size small --gpus "$list" --batch 128 --out "$out/ddp-small"
}

ranks-nodes() {
  local node pids=() failed=0 one
  "$binary" train --help | grep -q -- '--node ' || { not_run 'two supervisors: this build has no --node'; return 0; }
  one=("$binary" train "${tiny[@]}" "${small[@]}" --set train.shards=2)
  "${one[@]}" --set run.name=node > "$out/ranks-node.log" 2>&1 || { tail -n 3 "$out/ranks-node.log"; return 1; }
  for node in 0 1; do
    # Two hosts to NCCL, which then has nothing but sockets.
    CUDA_VISIBLE_DEVICES=$((node % gpus)) NCCL_HOSTID=node-$node NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo \
      with_ranks 2 "${one[@]}" --set run.name=nodes --nodes 2 --node "$node" --attempt "check-$$" > "$out/ranks-node-$node.log" 2>&1 &
    pids+=($!)
  done
  for node in 0 1; do wait "${pids[node]}" || { echo "node $node: exit code $?"; tail -n 3 "$out/ranks-node-$node.log"; failed=1; }; done
  if [ "$failed" = 0 ] && same "$work/ranks/node" "$work/ranks/nodes"; then echo 'two nodes of one GPU: the same bytes'; else
    echo 'two nodes of one GPU: OTHER BYTES, or none'
    failed=1
  fi
  [ "$gpus" -ge 2 ] || not_run 'a GPU for each node: both share one'
  return "$failed"
}

# Whether two runs left the same results and the same last checkpoint.
same() {
  local file files=() folder
  cmp "$1/metrics.jsonl" "$2/metrics.jsonl" || return
  folder=$(cd "$1" && compgen -G 'checkpoints/step-*' | tail -n 1)
  mapfile -t files < <(compgen -G "$1/${folder:-none}/*")
  [ "${#files[@]}" -gt 0 ] || { echo "$1 has no checkpoint"; return 1; }
  for file in "${files[@]}"; do cmp "$file" "$2/$folder/${file##*/}" || return; done
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

# Runs a tool of compute-sanitizer over our kernels at the sizes of `verify`, which are odd ones too,
# and over all kernels of training steps of a small model by each method.
sanitize() { # TOOL
  local kind=$1 tool said process processes method i number=0 failed=0 names=() pids=()
  processes=$(( $(nproc) < 16 ? $(nproc) : 16 ))
  tool=$(command -v compute-sanitizer || compgen -G '/usr/local/cuda*/bin/compute-sanitizer' | head -n 1)
  [ -n "$tool" ] || { not_run 'there is no compute-sanitizer'; return 1; }
  said=$(timeout 30 "$tool" --tool "$kind" "$binary" doctor --device "$gpu" 2>&1)
  if grep -qi 'device not supported' <<< "$said"; then
    not_run "$kind refuses this GPU"
    return 1
  fi
  under_it() { # NAME ARGUMENTS...
    timeout "$(( LIMIT - 20 ))" "$tool" --tool "$kind" --print-limit 0 --error-exitcode 99 "$binary" "${@:2}" > "$out/$kind-$1.log" 2>&1 &
    names+=("$1") pids+=($!)
  }
  for method in ${METHODS:-$all_methods}; do
    [ "$(( number++ % shard_count ))" = "$(( shard_index - 1 ))" ] || continue
    under_it "$method" bench phases configs/debug.toml --set devices.backend=cuda --set train.precision=bf16 --batch 3 --steps 1 \
      --warmup 1 --set model.d_model=40 --set model.d_state=16 --set model.image_size=40 --set "model.discretization=$method"
  done
  for process in $(seq "$processes"); do
    under_it "$process" verify --device "$gpu" --quick --dtype all --implementations kernel ${METHODS:+--methods "${METHODS// /,}"} \
      --shard "$(shard "$process" "$processes")"
  done
  for i in "${!pids[@]}"; do
    wait "${pids[i]}" || { echo "${names[i]}: exit code $?"; failed=1; }
    grep -hE -m 3 '=========.*(Invalid|Error|Race|Uninit|Barrier)' "$out/$kind-${names[i]}.log"
    grep -hE 'checks,|SUMMARY' "$out/$kind-${names[i]}.log"
  done
  return "$failed"
}
memcheck() { sanitize memcheck; }
racecheck() { sanitize racecheck; }
synccheck() { sanitize synccheck; }
initcheck() { sanitize initcheck; }

# The seconds that a part may take.
limit() {
  case "$1" in
    start | doctor | verify | loop) echo 420 ;;
    memory | recompute) echo 120 ;;
    methods) echo 300 ;;
    golden | precisions | storm | bench | graphs | ranks-*) echo 580 ;;
    memcheck | racecheck | synccheck | initcheck) echo "$LIMIT" ;;
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

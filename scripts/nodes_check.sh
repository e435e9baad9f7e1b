#!/usr/bin/env bash
# Tests runs on two nodes, and nodes full of runs, on a real SLURM of two nodes: they survive what clusters do to jobs,
# and end with the same bytes as a run on one rank that is left alone.
#
#   scripts/nodes_check.sh BINARY              BINARY is a vim-train, of any build; five minutes
#   scripts/nodes_check.sh BINARY --tiny       a requeue, two runs at once, and a packed sweep: a minute
#   scripts/nodes_check.sh BINARY --keep DIR   works in DIR, and does not remove it
#
# Both nodes are this machine (scripts/slurm_up.sh --nodes 2; as root), and ranks are processes on its processor. A run
# with slurm.nodes = 2 is requeued; warned ahead of its time limit; preempted; cancelled, and submitted again; its second
# node's process is killed; its second node is lost. Two runs of two ranks on a node each do not meet. A sweep with
# sweep.pack = "node" trains two runs on a node side by side; a task of it is requeued, and one of its runs is killed and
# retried. Each metrics.jsonl must be that of the same run left alone, byte by byte.
#
# Exit code: 0 everything passed; 1 a failure; 2 bad arguments.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }
fail() {
  echo "FAILED after $SECONDS s: $1" >&2
  [ -z "${2:-}" ] || tail -n 30 "$2" >&2 || true
  exit 1
}
binary='' work='' temporary='' tiny=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --tiny) tiny=1; shift ;;
    --keep)
      [ $# -ge 2 ] || { echo 'error: --keep needs a value' >&2; exit 2; }
      work=$2
      shift 2 ;;
    -*) echo "error: unknown argument $1; --help says what there is" >&2; exit 2 ;;
    *) binary=$1; shift ;;
  esac
done
[ -x "$binary" ] || { echo 'error: name a vim-train binary, as target/release/vim-train' >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "error: must be root, to start SLURM's daemons" >&2; exit 2; }

# A cluster of this script's own, which does not touch others on the machine.
VIM_SLURM_DIR=$(mktemp -d /tmp/vim-train-slurm-XXXXXX)
chmod 755 "$VIM_SLURM_DIR" # munge wants it so
export VIM_SLURM_DIR VIM_SLURM_PORT=${VIM_SLURM_PORT:-$((21000 + RANDOM % 1000 * 4))}
if [ -z "$work" ]; then
  work=$(mktemp -d)
  temporary=$work
fi
mkdir -p "$work"
work=$(realpath "$work")
[ -z "$(ls -A "$work")" ] || fail "$work is not empty"
# A name of its own, by which the processes of this check are found.
cp "$binary" "$work/vim-train"
binary=$work/vim-train
ours() { # [NAME=VALUE]: processes of this check, with that in their environment
  local exe pid
  for exe in /proc/[0-9]*/exe; do
    [ "$(readlink "$exe" 2>/dev/null)" = "$binary" ] || continue
    pid=${exe#/proc/} pid=${pid%/exe}
    [ -z "${1:-}" ] || tr '\0' '\n' < "/proc/$pid/environ" 2>/dev/null | grep -q -x -F -- "$1" || continue
    echo "$pid"
  done
}
left=''
tidy() {
  local pid
  "$here/scripts/slurm_down.sh" --purge > /dev/null 2>&1 || true
  for pid in $(ours); do left="$left $pid"; kill -9 "$pid" 2>/dev/null || true; done
  [ -z "$temporary" ] || rm -rf "$temporary"
}
trap tidy EXIT
"$here/scripts/slurm_up.sh" --nodes 2 2> "$work/slurm-up.log" || fail 'SLURM did not start' "$work/slurm-up.log"
# shellcheck disable=SC1091
. "$VIM_SLURM_DIR/env.sh"
unset VIM_TRAIN_SITE VIM_USE_CUDA_KERNEL
say "SLURM $(sinfo --version | cut -d' ' -f2) with $(sinfo -h -p main -o %D) nodes"

settings=(--set "run.root=$work" --set devices.backend=cpu --set devices.threads=1 --set data.workers=1
  --set train.shards=4 --set model.d_model=64 --set train.eval_every=20ep --set checkpoint.every=1ep
  --set slurm.time=10 --set slurm.mem=1G --set slurm.cpus_per_task=2 --set slurm.stop_without_progress=5)
trial=4 seconds=25
[ -z "$tiny" ] || seconds=7
start=$(date +%s%3N)
"$binary" train "$here/configs/debug.toml" "${settings[@]}" --set run.name=trial --set train.epochs=$trial \
  > "$work/out" 2> "$work/err" || fail 'a run without SLURM' "$work/err"
milliseconds=$(($(date +%s%3N) - start))
epochs=$((seconds * 1000 * trial / milliseconds + 2))
settings+=(--set "train.epochs=$epochs")
"$binary" train "$here/configs/debug.toml" "${settings[@]}" --set run.name=whole > "$work/out" 2> "$work/err" ||
  fail 'a run without SLURM' "$work/err"
say "$trial epochs take $milliseconds ms: $epochs in each run; one left alone, on one rank, is done"

slurm() { # SUBCOMMAND NAME [more arguments]
  local subcommand=$1 name=$2
  shift 2
  "$binary" slurm "$subcommand" "$here/configs/debug.toml" "${settings[@]}" --set "run.name=$name" "$@"
}
on_two() { # NAME [more arguments]: submits it on both nodes, and prints the job
  local name=$1
  shift
  slurm submit "$name" --set slurm.nodes=2 "$@" 2> "$work/err" || fail "submit $name" "$work/err"
}
field() { timeout 10 scontrol -o show job "$1" | grep -o -E "(^| )$2=[^ ]*" | head -n 1 | sed 's/.*=//'; }
until_true() { # SECONDS WHAT COMMAND…
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || { squeue -a >&2; fail "not in time: $what" "$(compgen -G "$work/*/slurm/*.out" | tail -n 1)"; }
    sleep 0.3
  done
}
records() { # NAME COUNT
  [ -e "$work/$1/metrics.jsonl" ] && [ "$(wc -l < "$work/$1/metrics.jsonl")" -ge "$2" ]
}
said() { grep -q "$2" "$work/$1/log.txt" 2>/dev/null; }
restarted() { [ "$(field "$1" Restarts)" -ge "$2" ]; }
is() { [ "$(field "$1" JobState)" = "$2" ]; }
# A requeued job waits two minutes, which its owner may cut short, though not within the same second.
ended() { # JOB
  case "$(field "$1" JobState)/$(field "$1" Reason)" in
    COMPLETED/*) return 0 ;;
    PENDING/BeginTime) sleep 2; scontrol update JobId="$1" StartTime=now 2> /dev/null || true ;;
    FAILED/* | CANCELLED/* | TIMEOUT/* | NODE_FAIL/*)
      fail "job $1: $(field "$1" JobState) $(field "$1" ExitCode)" "$(compgen -G "$work/*/slurm/*-$1.out" | tail -n 1)" ;;
  esac
  return 1
}
same() { # NAME [WHAT IT IS COMPARED WITH]
  cmp "$work/${2:-whole}/metrics.jsonl" "$work/$1/metrics.jsonl" || fail "$1: metrics.jsonl differs" "$work/$1/log.txt"
  say "ok   $1: metrics.jsonl is that of the run left alone ($(wc -l < "$work/$1/metrics.jsonl") records, $(grep -c -E '"event":"(start|resume)"' "$work/$1/events.jsonl") lives)"
}
to_the_end() { # NAME JOB
  until_true 200 "$1 at its end" ended "$2"
  same "$1"
}

# --- what submit says ------------------------------------------------------------------------------------------------
refused() { # TEXT [more arguments]
  local text=$1 code=0
  shift
  slurm submit wrong "$@" > "$work/out" 2> "$work/err" || code=$?
  [ "$code" = 78 ] && grep -q -F -- "$text" "$work/err" || fail "not refused with: $text" "$work/err"
  say "ok   refused: $(grep '^error' "$work/err" | cut -c 1-120)"
}
refused '3 nodes are more than partition `main` has that fit: 2' --set slurm.nodes=3 --set slurm.partition=main
slurm submit wrong --set slurm.nodes=2 --dry-run > "$work/out" 2> "$work/err" || fail 'dry run' "$work/err"
grep -q -x '#SBATCH --nodes=2' "$work/out" || fail 'dry run: no --nodes=2' "$work/out"
grep -q 'to start at' "$work/err" || fail 'dry run: no estimate' "$work/err"

# --- two machines, by name: ranks on processors cannot meet ------------------------------------------------------------
if unshare --uts true 2> /dev/null; then
  apart=("$binary" train "$here/configs/debug.toml" "${settings[@]}" --set run.name=apart --nodes 2 --attempt apart --node)
  "${apart[@]}" 0 > "$work/out" 2> "$work/err" &
  code=0 other=0
  unshare --uts sh -c 'hostname elsewhere && exec "$@"' sh "${apart[@]}" 1 > "$work/out1" 2> "$work/err1" || code=$?
  wait $! || other=$?
  [ "$code/$other" = 69/69 ] || fail "exit codes $code and $other of two machines" "$work/err"
  text="^error: rank 1 (node elsewhere, cpu) failed: ranks on CPUs must be on one machine"
  grep -q "$text" "$work/err" && grep -q "$text" "$work/err1" || fail 'two machines' "$work/err"
  say "ok   $(grep -m 1 "$text" "$work/err1")"
fi

# --- a run on both nodes, requeued ------------------------------------------------------------------------------------
requeued=$(on_two requeued)
until_true 60 'requeued: no record' records requeued 3
"$binary" slurm requeue requeued --root "$work" > "$work/out" 2> "$work/err" || fail 'requeue' "$work/err"
until_true 30 'requeued' restarted "$requeued" 1
until_true 30 'requeued: said so' said requeued 'requeued ('
say "requeued: $(grep -m 1 'requeued (' "$work/requeued/log.txt")"
grep -q '2 ranks on 2 nodes (1 + 1), 4 shards' "$work/requeued/log.txt" || fail 'not on two nodes' "$work/requeued/log.txt"

# --- meanwhile two runs of two ranks, one on each node ----------------------------------------------------------------
pair() { # NAME
  cat > "$work/$1.sh" <<END
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=2 --mem=1G --time=10 --exclusive --output=$work/$1.out
exec srun --kill-on-bad-exit=1 --cpus-per-task=2 $binary train $here/configs/debug.toml --ranks 2 --resume auto \\
  $(printf '%q ' "${settings[@]}" --set "run.name=$1")
END
  sbatch --parsable "$work/$1.sh"
}
first=$(pair first) second=$(pair second)
until_true 120 'first and second at work' eval 'records first 1 && records second 1'
[ "$(field "$first" NodeList)" != "$(field "$second" NodeList)" ] || fail 'both on one node'
until_true 120 'first at its end' ended "$first"
until_true 120 'second at its end' ended "$second"
same first
same second
to_the_end requeued "$requeued"

# --- a sweep, a node of two runs a task -------------------------------------------------------------------------------
config() { # ROOT
  cat > "$1.toml" <<TOML
extends = ["$here/configs/debug.toml"]
[run]
root = "$1"
[sweep]
name = "packed"
seeds = [0, 1, 2]
pack = "node"
per_node = 2
TOML
}
config "$work/here"
config "$work/there"
of_sweep=("${settings[@]:2}" --set devices.threads=1)
"$binary" sweep run "$work/here.toml" "${of_sweep[@]}" -j 1 > "$work/out" 2> "$work/err" || fail 'sweep run' "$work/err"
"$binary" sweep submit "$work/there.toml" "${of_sweep[@]}" --dry-run > "$work/out" 2> "$work/err" || fail 'dry run' "$work/err"
grep -q -x 'task 0: runs 0-1' "$work/err" || fail 'dry run of a sweep: no runs' "$work/err"
array=$("$binary" sweep submit "$work/there.toml" "${of_sweep[@]}" 2> "$work/err") || fail 'sweep submit' "$work/err"
packed=there/packed
run_of() { sed -n "$(($1 + 1))s/.*\"name\":\"\([^\"]*\)\".*/\1/p" "$work/$packed/plan.jsonl"; }
until_true 60 'packed: no record' records "$packed/$(run_of 0)" 1
until_true 60 'packed: no record beside it' records "$packed/$(run_of 1)" 1
"$binary" slurm status "$work/there" > "$work/out" 2> "$work/err" || fail 'status' "$work/err"
cat "$work/out"
"$binary" slurm requeue packed --root "$work/there" --task 1 > "$work/out" 2> "$work/err" || fail 'requeue --task' "$work/err"
grep -q "job ${array}_0, which trains runs 0-1, is told to save" "$work/err" || fail 'requeue --task' "$work/err"
until_true 30 'packed: requeued' restarted "${array}_0" 1
say "packed: $(head -n 1 "$work/err")"
if [ -z "$tiny" ]; then
  # Its neighbour's only run is killed, and submitted again.
  for pid in $(ours); do
    if tr '\0' ' ' < "/proc/$pid/cmdline" | grep -q -- 'task --watched --index 2 '; then kill -9 "$pid"; fi
  done
  until_true 30 'packed: task 1 failed' is "${array}_1" FAILED
  [ "$(field "${array}_1" ExitCode)" = 1:0 ] || fail "packed: $(field "${array}_1" ExitCode)"
  again=$("$binary" sweep retry "$work/there/packed" --failed --missing --submit 2> "$work/err") || fail 'sweep retry' "$work/err"
  say "packed: $(grep -m 1 submitted "$work/err")"
  until_true 200 'packed: again at its end' ended "${again}_0"
else
  until_true 200 'packed: task 1 at its end' ended "${array}_1"
fi
until_true 200 'packed: task 0 at its end' ended "${array}_0"
"$binary" slurm logs packed --root "$work/there" --task 1 | grep -q 'test top-1' || fail 'logs --task 1'
for index in 0 1 2; do same "$packed/$(run_of "$index")" "here/packed/$(run_of "$index")"; done
"$binary" sweep submit "$work/there/packed" > "$work/out" 2> "$work/err" || fail 'sweep submit again' "$work/err"
grep -q 'nothing to submit' "$work/err" || fail 'sweep submit again' "$work/err"

if [ -z "$tiny" ]; then
  # --- the others --------------------------------------------------------------------------------------------------------
  limit=$(on_two limit --set slurm.time=1 --set slurm.signal=USR2@50)
  until_true 90 'limit: not requeued' said limit 'requeued (time limit near)'
  say "limit: $(grep -m 1 'requeued (time limit near)' "$work/limit/log.txt")"
  to_the_end limit "$limit"

  preempted=$(on_two preempted --set slurm.partition=low)
  until_true 60 'preempted: no record' records preempted 2
  high=$(sbatch --parsable -p high -N 2 -c 15 --ntasks-per-node=1 --mem=1G -o /dev/null --wrap 'sleep 2')
  until_true 60 'preempted: not requeued' said preempted 'requeued (preempted)'
  until_true 60 'preempted' restarted "$preempted" 1
  until_true 60 'the other job' is "$high" COMPLETED
  say "preempted: $(grep -m 1 'requeued (preempted)' "$work/preempted/log.txt")"
  to_the_end preempted "$preempted"

  cancelled=$(on_two cancelled)
  until_true 60 'cancelled: no record' records cancelled 2
  "$binary" slurm cancel cancelled --root "$work" 2> "$work/err" || fail 'cancel' "$work/err"
  until_true 30 'cancelled' is "$cancelled" CANCELLED
  grep -q '"reason": "interrupted"' "$work/cancelled/exit.json" || fail 'cancelled: not saved' "$work/cancelled/exit.json"
  [ "$(field "$cancelled" Restarts)" = 0 ] || fail 'cancelled: requeued'
  to_the_end cancelled "$(on_two cancelled)"

  # A sweep whose runs have two nodes each.
  printf 'extends = "%s"\n[sweep]\nname = "wide"\nseeds = [0]\n' "$here/configs/debug.toml" > "$work/wide.toml"
  wide=$("$binary" sweep submit "$work/wide.toml" "${settings[@]}" --set slurm.nodes=2 2> "$work/err") ||
    fail 'sweep submit on two nodes' "$work/err"
  until_true 120 'wide at its end' ended "${wide}_0"
  wide=$(cd "$work" && compgen -G 'wide/*/log.txt') wide=${wide%/log.txt}
  grep -q '2 ranks on 2 nodes (1 + 1), 4 shards' "$work/$wide/log.txt" || fail 'wide: not on two nodes' "$work/$wide/log.txt"
  same "$wide"

  on_node() { # NODE JOB: processes of the check there
    local pid
    for pid in $(ours "SLURMD_NODENAME=$1"); do
      tr '\0' '\n' < "/proc/$pid/environ" 2>/dev/null | grep -q -x "SLURM_JOB_ID=$2" && echo "$pid"
    done
    true
  }
  # A rank fails: the job does, with the line that says which, and its next submission goes on.
  rank=$(on_two rank)
  until_true 60 'rank: no record' records rank 2
  for pid in $(on_node node2 "$rank"); do
    if tr '\0' ' ' < "/proc/$pid/cmdline" | grep -q -- '--rank {'; then kill -9 "$pid"; fi
  done
  until_true 40 'rank: its job failed' is "$rank" FAILED
  [ "$(field "$rank" ExitCode)" = 69:0 ] || fail "rank: $(field "$rank" ExitCode)" "$(compgen -G "$work/rank/slurm/*.out")"
  grep -q 'rank 1 (node .*, cpu) was killed by signal 9' "$work/rank/exit.json" || fail 'rank: not named' "$work/rank/exit.json"
  say "rank: $(grep -m 1 'was killed' "$work"/rank/slurm/*.out)"
  to_the_end rank "$(on_two rank)"

  # All of a node's processes are killed, SLURM's step among them: its daemon is alive.
  step=$(on_two step)
  until_true 60 'step: no record' records step 2
  for pid in $(on_node node2 "$step"); do
    parent=$(ps -o ppid= -p "$pid" | tr -d ' ')
    if grep -q -a "slurmstepd: \[$step" "/proc/$parent/cmdline" 2>/dev/null; then kill -9 "$parent"; fi
    kill -9 "$pid" 2>/dev/null || true
  done
  until_true 60 'step: not requeued' restarted "$step" 1
  say "step: $(grep -m 1 'requeued' "$work/step/log.txt" || echo 'requeued by SLURM')"
  to_the_end step "$step"

  # A node is lost with its daemon, and comes back.
  lost=$(on_two lost)
  until_true 60 'lost: no record' records lost 2
  kill -9 "$(cat "$VIM_SLURM_DIR/slurmd-node2.pid")"
  for pid in $(on_node node2 "$lost"); do
    parent=$(ps -o ppid= -p "$pid" | tr -d ' ')
    if grep -q -a "slurmstepd: \[$lost" "/proc/$parent/cmdline" 2>/dev/null; then kill -9 "$parent"; fi
    kill -9 "$pid" 2>/dev/null || true
  done
  until_true 150 'lost: not requeued' restarted "$lost" 1
  say "lost: $(grep -m 1 'requeued' "$work/lost/log.txt" || echo 'requeued by SLURM')"
  "$here/scripts/slurm_up.sh" --nodes 2 2> "$work/slurm-up.log" || fail 'the node did not come back' "$work/slurm-up.log"
  to_the_end lost "$lost"
fi

idle() { [ -z "$(squeue -h -o %A)" ]; }
until_true 30 'no job left' idle
[ ! -e "$work/.ranks" ] || fail "left where ranks meet: $(ls "$work/.ranks")"
tidy
trap - EXIT
[ -z "$left" ] || fail "processes were left:$left"
say 'all shown; nothing left running'

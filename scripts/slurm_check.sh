#!/usr/bin/env bash
# Shows on a real SLURM that a run survives what clusters do to jobs, and ends with the same bytes all the same.
#
#   scripts/slurm_check.sh BINARY              BINARY is a vim-train, of any build; under three minutes
#   scripts/slurm_check.sh BINARY --keep DIR   works in DIR, and leaves it there
#
# It brings up a SLURM of its own (scripts/slurm_up.sh; as root), and takes it down again. The same short run, on the
# CPU, is then
#   1. left alone,
#   2. warned ahead of its time limit, by SLURM itself,
#   3. preempted by a job of higher priority,
#   4. cancelled, and submitted again;
# after 2, 3 and 4 its metrics.jsonl must be that of 1, byte by byte. Besides: exit codes, output that cannot be
# written, and requests that the cluster cannot meet, which must be found before sbatch.
#
# Exit code: 0 all of it shown; 1 a surprise; 2 bad arguments.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

fail() {
  echo "FAILED: $1" >&2
  [ -z "${2:-}" ] || cat "$2" >&2 || true
  exit 1
}
binary='' work='' temporary=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --keep)
      [ $# -ge 2 ] || { echo 'error: --keep needs a value' >&2; exit 2; }
      work=$2
      shift 2 ;;
    -*) echo "error: unknown argument $1; --help says what there is" >&2; exit 2 ;;
    *) binary=$1; shift ;;
  esac
done
[ -x "$binary" ] || { echo 'error: name a vim-train binary, as target/release/vim-train' >&2; exit 2; }
binary=$(realpath "$binary")

# A cluster of this script's own, so that others on the machine are left alone.
VIM_SLURM_DIR=$(mktemp -d /tmp/vim-train-slurm-XXXXXX)
export VIM_SLURM_DIR VIM_SLURM_PORT=${VIM_SLURM_PORT:-$((27000 + RANDOM % 1000 * 2))}
tidy() {
  "$here/scripts/slurm_down.sh" --purge || true
  [ -z "$temporary" ] || rm -rf "$temporary"
}
trap tidy EXIT
if [ -z "$work" ]; then
  work=$(mktemp -d)
  temporary=$work
fi
mkdir -p "$work"
work=$(realpath "$work")
[ -z "$(ls -A "$work")" ] || fail "$work is not empty"
"$here/scripts/slurm_up.sh"
# shellcheck disable=SC1091
. "$VIM_SLURM_DIR/env.sh"
unset VIM_TRAIN_SITE VIM_USE_CUDA_KERNEL

# One thread and a model for which all steps together take several seconds.
settings=(--set "run.root=$work" --set devices.backend=cpu --set devices.threads=1 --set data.workers=1
  --set "train.epochs=${EPOCHS:-60}" --set model.d_model=64 --set train.eval_every=20ep --set checkpoint.every=1ep
  --set slurm.time=10 --set slurm.mem=1G --set slurm.cpus_per_task=2 --set slurm.stop_without_progress=5)
slurm() { # SUBCOMMAND NAME [more arguments]
  local subcommand=$1 name=$2
  shift 2
  "$binary" slurm "$subcommand" "$here/configs/debug.toml" "${settings[@]}" --set "run.name=$name" "$@"
}
field() { timeout 10 scontrol -o show job "$1" | grep -o -E "(^| )$2=[^ ]*" | head -n 1 | sed 's/.*=//'; }
steps() { # NAME: steps of its newest checkpoint
  local newest
  newest=$(ls -d "$work/$1"/checkpoints/step-* 2>/dev/null | tail -n 1)
  echo $((10#${newest##*-}))
}
until_true() { # SECONDS WHAT COMMAND…
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || { squeue; fail "$what" /dev/null; }
    sleep 0.3
  done
}
is() { [ "$(field "$1" JobState)" = "$2" ]; }
has_steps() { [ "$(steps "$1")" -ge 1 ]; }
said() { grep -q "$2" "$work/$1/log.txt" 2>/dev/null; }
# A requeued job waits two minutes, which its owner may cut short, though not within the same second.
to_the_end() { # NAME JOB: until the job has completed
  local deadline=$((SECONDS + 120))
  until is "$2" COMPLETED; do
    [ "$SECONDS" -lt "$deadline" ] || { tail -n 20 "$work/$1/log.txt"; fail "$1: $(field "$2" JobState) after 120 s"; }
    case "$(field "$2" JobState)/$(field "$2" Reason)" in
      PENDING/BeginTime) sleep 3; scontrol update JobId="$2" StartTime=now || true ;;
      FAILED/* | CANCELLED/* | TIMEOUT/* | NODE_FAIL/*) fail "$1: $(field "$2" JobState)" "$work/$1/log.txt" ;;
    esac
    sleep 0.5
  done
}
same() { # NAME
  cmp "$work/whole/metrics.jsonl" "$work/$1/metrics.jsonl" || fail "$1: metrics.jsonl differs"
  echo "ok   $1: metrics.jsonl is that of the run left alone ($(wc -l < "$work/$1/metrics.jsonl") records, $(grep -c -E '"event":"(start|resume)"' "$work/$1/events.jsonl") lives)"
}
refused() { # CODE TEXT NAME [more arguments]: submit must fail so, before sbatch
  local code=0 expected=$1 text=$2
  shift 2
  slurm submit "$@" > "$work/out" 2> "$work/err" || code=$?
  [ "$code" = "$expected" ] || fail "exit code $code, not $expected, for: $text" "$work/err"
  grep -q -F -- "$text" "$work/err" || fail "not said: $text" "$work/err"
  grep -q sbatch "$work/err" && fail "sbatch was asked" "$work/err"
  echo "ok   refused with $code: $(grep '^error' "$work/err" | cut -c 1-150)"
}

# What cannot be met is found before anything waits in a queue.
refused 78 'is it `main`?' wrong --set slurm.partition=mian
refused 78 'at most 1-00:00:00' wrong --set slurm.partition=main --set slurm.time=2-00:00:00
refused 78 'h100:4' wrong --set slurm.gpus_per_node=h100:8
refused 78 'is it `h100`?' wrong --set slurm.gpus_per_node=h10:1
refused 78 'slurm.mem:' wrong --set slurm.mem=65G
refused 78 'unknown site `nowhere`' wrong --set slurm.site=nowhere
refused 78 'slurm.nodes' wrong --set slurm.nodes=2
refused 78 'is it `slurm.partition`' wrong --set slurm.partion=main 2>/dev/null || refused 78 'unknown key' wrong --set slurm.partion=main
echo > "$work/file"
refused 74 'cannot make' wrong --set "slurm.output=$work/file/x/%j.out"
[ -z "$(squeue -h)" ] || fail 'something was submitted all the same'
slurm submit wrong --dry-run > "$work/out" 2> "$work/err" || fail 'dry run' "$work/err"
grep -q '^exec srun' "$work/out" || fail 'dry run: no script' "$work/out"
grep -q 'to start at' "$work/err" || fail 'dry run: no estimate' "$work/err"
[ -z "$(squeue -h)" ] || fail 'a dry run was submitted'
echo 'ok   dry run: the script, and when SLURM would start it'

# 1 to 4, side by side.
whole=$(slurm submit whole 2> "$work/err") || fail 'submit' "$work/err"
slurm submit whole > "$work/out" 2> "$work/err" && fail 'submitted twice'
grep -q "has job $whole already" "$work/err" || fail 'submitted twice' "$work/err"
echo 'ok   a run that is queued is not submitted again'
limit=$(slurm submit limit --set slurm.time=1 --set slurm.signal=USR2@50 2> "$work/err") || fail 'submit' "$work/err"
cancelled=$(slurm submit cancelled 2> "$work/err") || fail 'submit' "$work/err"
until_true 60 'cancelled: no step' has_steps cancelled
"$binary" slurm cancel cancelled --root "$work" 2> "$work/err" || fail 'cancel' "$work/err"
until_true 30 'scancel' is "$cancelled" CANCELLED
said cancelled 'not requeued (cancelled: scancel is final)' || fail 'scancel' "$work/cancelled/log.txt"
grep -q '"reason": "interrupted"' "$work/cancelled/exit.json" || fail 'scancel: not saved' "$work/cancelled/exit.json"
[ "$(field "$cancelled" Restarts)" = 0 ] || fail 'scancel: requeued'
echo "ok   scancel: saved at step $(steps cancelled), final"
again=$(slurm submit cancelled 2> "$work/err") || fail 'submit after scancel' "$work/err"

preempted=$(slurm submit preempted --set slurm.partition=low 2> "$work/err") || fail 'submit' "$work/err"
until_true 60 'preempted: no step' has_steps preempted
# It needs the cores of everything in partition low, and of nothing in main.
high=$(sbatch --parsable -p high -c 9 --mem=1G -o /dev/null --wrap 'sleep 4')
until_true 60 'preemption: not requeued' said preempted 'requeued (preempted)'
echo "ok   preemption: $(grep 'requeued (preempted)' "$work/preempted/log.txt")"

until_true 60 'time limit: not requeued' said limit 'requeued (time limit near)'
echo "ok   time limit: $(grep -m 1 'requeued (time limit near)' "$work/limit/log.txt")"
"$binary" slurm status "$work" > "$work/out" 2> "$work/err" || fail 'status' "$work/err"
[ "$(grep -c -E "^(whole|limit|cancelled|preempted) " "$work/out")" = 4 ] || fail 'status' "$work/out"
cat "$work/out"

to_the_end whole "$whole"
to_the_end cancelled "$again"
to_the_end preempted "$preempted"
to_the_end limit "$limit"
scancel "$high" 2>/dev/null || true
same limit
same preempted
same cancelled
slurm submit whole > "$work/out" 2> "$work/err" || fail 'submit of a finished run' "$work/err"
grep -q 'is finished: nothing to submit' "$work/err" || fail 'submit of a finished run' "$work/err"
"$binary" slurm logs whole --root "$work" | grep -q 'test top-1' || fail 'logs'
echo 'ok   logs, and a finished run is not submitted again'

# The trainer's exit code is the job's, and that of `submit --wait`.
code=0
slurm submit lost --set data.dataset=cifar100 --set "data.path=$work/nothing" --wait > "$work/out" 2> "$work/err" || code=$?
job=$(head -n 1 "$work/out")
[ "$(field "$job" ExitCode)" = "$code:0" ] && [ "$code" != 0 ] && is "$job" FAILED || fail "exit codes: $code" "$work/err"
echo "ok   exit code $code of a run without data is the job's and the command's"
[ -z "$(squeue -h)" ] || { squeue; fail 'jobs are left'; }
echo "all of it shown, in $SECONDS s"

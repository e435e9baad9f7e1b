#!/usr/bin/env bash
# Tests on a real SLURM that a run survives what clusters do to jobs, and ends with the same bytes.
#
#   scripts/slurm_check.sh BINARY              BINARY is a vim-train, of any build; three to five minutes
#   scripts/slurm_check.sh BINARY --keep DIR   works in DIR, and does not remove it
#
# It brings up a SLURM of its own (scripts/slurm_up.sh; as root), and takes it down again. The same short run, on the
# CPU, is then
#   1. not interrupted,
#   2. warned ahead of its time limit, by SLURM itself,
#   3. preempted by a job of higher priority,
#   4. cancelled, and submitted again,
#   5. warned, and resubmitted as a new job instead of requeued: as a job of its own, and as a task of an array;
# after 2 to 5 its metrics.jsonl must be that of 1, byte by byte. Besides: a job after another, exit codes, output that
# cannot be written, and requests that the cluster cannot meet, which must be found before sbatch.
#
# Exit code: 0 everything passed; 1 a failure; 2 bad arguments.
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

# A cluster of this script's own, which does not touch others on the machine.
VIM_SLURM_DIR=$(mktemp -d /tmp/vim-train-slurm-XXXXXX)
# Its daemons must be able to reach their socket in it.
chmod 755 "$VIM_SLURM_DIR"
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

# One thread, a model for which a step takes a while, and as many epochs as take longer than the half minute that SLURM
# may let pass before it sends a warning that is due.
settings=(--set "run.root=$work" --set devices.backend=cpu --set devices.threads=1 --set data.workers=1
  --set model.d_model=64 --set train.eval_every=20ep --set checkpoint.every=1ep
  --set slurm.time=10 --set slurm.mem=1G --set slurm.cpus_per_task=2 --set slurm.stop_without_progress=5)
trial=8
start=$(date +%s%3N)
"$binary" train "$here/configs/debug.toml" "${settings[@]}" --set run.name=trial --set train.epochs=$trial \
  > "$work/out" 2> "$work/err" || fail 'a run without SLURM' "$work/err"
milliseconds=$(($(date +%s%3N) - start))
epochs=$((36000 * trial / milliseconds + 1))
echo "$trial epochs take $milliseconds ms: $epochs in each run"
settings+=(--set "train.epochs=$epochs")
slurm() { # SUBCOMMAND NAME [more arguments]
  local subcommand=$1 name=$2
  shift 2
  "$binary" slurm "$subcommand" "$here/configs/debug.toml" "${settings[@]}" --set "run.name=$name" "$@"
}
field() { timeout 10 scontrol -o show job "$1" | grep -o -E "(^| )$2=[^ ]*" | head -n 1 | sed 's/.*=//'; }
steps() { # NAME: steps of its newest checkpoint
  local newest
  newest=$(compgen -G "$work/$1/checkpoints/step-*" | sort | tail -n 1 || true)
  echo $((10#0${newest##*-}))
}
until_true() { # SECONDS WHAT COMMAND…
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || { squeue; fail "$what" /dev/null; }
    sleep 0.3
  done
}
waits() { [ "$(field "$1" Reason)" = "$2" ]; }
is() { [ "$(field "$1" JobState)" = "$2" ]; }
# The last job that a run was resubmitted as.
moved_to() { sed -n 's/.*resubmitted as job \([0-9]*\) .*/\1/p' "$work/$1/log.txt" 2>/dev/null | tail -n 1; }
has_steps() { [ "$(steps "$1")" -ge 1 ]; }
said() { grep -q "$2" "$work/$1/log.txt" 2>/dev/null; }
# A requeued job waits two minutes, which its owner may cut short, though not within the same second.
to_the_end() { # [NAME JOB]…: until all of them have completed; for the job `moved`, the one that the run was handed on to
  local deadline=$((SECONDS + 150)) pairs=("$@") left=1 at
  while [ "$left" -gt 0 ]; do
    left=0
    for ((at = 0; at < ${#pairs[@]}; at += 2)); do
      set -- "${pairs[@]:at:2}"
      [ "$2" != moved ] || set -- "$1" "$(moved_to "$1")"
      case "$(field "$2" JobState)/$(field "$2" Reason)" in
        COMPLETED/*) continue ;;
        PENDING/BeginTime) sleep 2; scontrol update JobId="$2" StartTime=now || true ;;
        FAILED/* | CANCELLED/* | TIMEOUT/* | NODE_FAIL/*) fail "$1: $(field "$2" JobState)" "$work/$1/log.txt" ;;
      esac
      left=$((left + 1))
    done
    [ "$SECONDS" -lt "$deadline" ] || { squeue; fail "$left runs have not ended after 150 s"; }
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

# Requests that cannot be met are found before anything waits in a queue.
refused 78 '`main`?' wrong --set slurm.partition=mian
refused 78 'at most 1-00:00:00' wrong --set slurm.partition=main --set slurm.time=2-00:00:00
refused 78 'h100:4' wrong --set slurm.gpus_per_node=h100:8
refused 78 '`h100`?' wrong --set slurm.gpus_per_node=h10:1
refused 78 'slurm.mem:' wrong --set slurm.mem=65G
refused 78 'unknown site `nowhere`' wrong --set slurm.site=nowhere
refused 78 'slurm.nodes: 2 nodes are more' wrong --set slurm.nodes=2
refused 78 'slurm.partion: unknown key' wrong --set slurm.partion=main
echo > "$work/file"
refused 74 'cannot make' wrong --set "slurm.output=$work/file/x/%j.out"
[ -z "$(squeue -h)" ] || fail 'something was submitted all the same'
slurm submit wrong --dry-run > "$work/out" 2> "$work/err" || fail 'dry run' "$work/err"
grep -q '^exec srun' "$work/out" || fail 'dry run: no script' "$work/out"
grep -q 'to start at' "$work/err" || fail 'dry run: no estimate' "$work/err"
[ -z "$(squeue -h)" ] || fail 'a dry run was submitted'
echo 'ok   dry run: the script, and when SLURM would start it'

# doctor's report on a job's own limits.
srun -p main -c 2 --mem=2G -t 5 "$binary" doctor --device cpu > "$work/out" 2> "$work/err" || fail 'doctor in a job' "$work/out"
grep -E '^(pass|warn|fail) +(cpu|memory|slurm)' "$work/out"
grep -q -E '^pass +slurm +.*job' "$work/out" || fail 'doctor in a job: no word of the job' "$work/out"
echo "ok   doctor in a job: $(tail -n 1 "$work/out")"

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

to_the_end whole "$whole" cancelled "$again" preempted "$preempted" limit "$limit"
scancel "$high" 2>/dev/null || true
same limit
same preempted
same cancelled

# 5, with a job that waits for the first of them.
handing_on=(--set slurm.time=1 --set slurm.signal=USR2@50 --set slurm.on_interrupt=resubmit)
first=$(slurm submit moved "${handing_on[@]}" 2> "$work/err") || fail 'submit' "$work/err"
printf 'extends = "%s"\n[sweep]\nname = "array"\nseeds = [0]\n' "$here/configs/debug.toml" > "$work/array.toml"
array=$("$binary" sweep submit "$work/array.toml" "${settings[@]}" "${handing_on[@]}" 2> "$work/err") ||
  fail 'sweep submit' "$work/err"
after=$(slurm submit after --set train.epochs=1 --after "$first" 2> "$work/err") || fail 'submit --after' "$work/err"
timeout 10 scontrol -o show job "$after" | grep -q "Dependency=afterok:$first" || fail 'submit --after: no dependency'
until_true 90 'moved: not resubmitted' said moved 'resubmitted as job'
echo "ok   handed on: $(grep -m 1 'resubmitted as job' "$work/moved/log.txt")"
task=$(cd "$work" && compgen -G 'array/*/log.txt' | head -n 1) task=${task%/log.txt}
until_true 90 'array: not resubmitted' said "$task" 'resubmitted as job'
echo "ok   a task of array $array handed on: $(grep -m 1 'resubmitted as job' "$work/$task/log.txt")"
# Its first job has saved and ended with 75, so the job that waits for its success never starts, and SLURM says so.
until_true 60 'submit --after: not held back' waits "$after" DependencyNeverSatisfied
scancel "$after"
to_the_end moved moved "$task" moved
chained=$(slurm submit after --set train.epochs=1 --after "$(moved_to moved)" 2> "$work/err") || fail 'submit --after' "$work/err"
to_the_end after "$chained"
echo 'ok   a job after another: never after one that did not succeed, and at once after one that did'
same moved
same "$task"
"$binary" sweep status "$work/array" --json > "$work/out" 2> "$work/err" || fail 'sweep status' "$work/err"
grep -q -E '"state": *"finished"' "$work/out" || fail 'sweep status: a task that was handed on is not finished' "$work/out"
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
"$binary" slurm status lost --root "$work" > "$work/out" 2> "$work/err" || fail 'slurm status' "$work/err"
grep -q '^lost: .*nothing' "$work/err" || fail 'slurm status: not why the job failed' "$work/err"

# A GPU that this build or the node cannot use is said before sbatch, or by the job, which has one that is none.
code=0
slurm submit given --set devices.backend=auto --set slurm.gpus_per_node=1 --set train.epochs=1 --wait > "$work/out" 2> "$work/err" || code=$?
"$binary" slurm status given --root "$work" > "$work/out" 2>> "$work/err" || true
[ "$code" = 69 ] || grep -q -E '"backend": *"(cuda|wgpu)' "$work/given/env.json" || fail 'a GPU that is not used' "$work/err"
[ "$code" = 0 ] || grep -q -E 'this build has no|^given: .*SLURM_GPUS_ON_NODE=1' "$work/err" || fail 'not why it has no GPU' "$work/err"
echo "ok   a job that is given a GPU does not train on the CPU: $(grep -E -o 'this build has no.*|SLURM_GPUS_ON_NODE.*' "$work/err" | head -n 1)"
[ -z "$(squeue -h)" ] || { squeue; fail 'jobs are left'; }
echo "all of it shown, in $SECONDS s"

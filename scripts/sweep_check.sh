#!/usr/bin/env bash
# Tests that an interrupted sweep on SLURM gives the same results: interrupts its tasks in every way, and compares bytes.
#
#   scripts/sweep_check.sh BINARY              configs/ablation/shapes.toml, all six methods and two seeds; BINARY is a vim-train
#   scripts/sweep_check.sh BINARY --tiny       two methods, one seed, and one requeue
#   scripts/sweep_check.sh BINARY --keep DIR   works in DIR, and does not remove it
#   scripts/sweep_check.sh BINARY --jobs N     runs at a time, here and there (2)
#
# 1. `sweep run` on this machine: the reference.
# 2. The same sweep as an array on a SLURM of its own, on loopback (scripts/slurm_up.sh), in a partition that is preempted.
#    Of its tasks, while they run: one is preempted, one reaches its time limit, one is requeued by hand, one is cancelled,
#    and one's process is killed; `sweep retry` sends the last two again.
# 3. When all are complete: every metrics.jsonl must be the reference's, byte by byte, and so must `sweep summarize`'s table.
#
# Exit code: 0 everything passed; 1 a difference or another failure. All waits are bounded. It needs root, to start SLURM's
# daemons, which it stops at the end.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d'; }
say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }
fail() { echo "FAILED after $SECONDS s: $*" >&2; exit 1; }

binary='' work='' tiny='' jobs=2
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --tiny) tiny=1; shift ;;
    --keep | --jobs)
      [ $# -ge 2 ] || { echo "error: $1 needs a value" >&2; exit 2; }
      case "$1" in --keep) work=$2 ;; --jobs) jobs=$2 ;; esac
      shift 2 ;;
    -*) echo "error: unknown argument $1; --help says what there is" >&2; exit 2 ;;
    *) binary=$1; shift ;;
  esac
done
[ -x "$binary" ] || { echo "error: name a vim-train binary, as target/release/vim-train" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "error: must be root, to start SLURM's daemons" >&2; exit 2; }

temporary=''
if [ -z "$work" ]; then work=$(mktemp -d); temporary=$work; fi
mkdir -p "$work"; work=$(realpath "$work")
[ -z "$(ls -A "$work")" ] || fail "$work is not empty"
# A name of its own, by which the processes of this check are found.
cp "$binary" "$work/vim-train"
binary=$work/vim-train

# A cluster of its own, beside any other on this machine.
VIM_SLURM_DIR=$(mktemp -d /tmp/vim-train-slurm-XXXXXX)
chmod 755 "$VIM_SLURM_DIR" # munge wants it so
export VIM_SLURM_DIR VIM_SLURM_PORT=${VIM_SLURM_PORT:-$(( 29000 + RANDOM % 1000 * 2 ))}

# Processes whose program is this check's binary.
ours() {
  local exe
  for exe in /proc/[0-9]*/exe; do
    if [ "$(readlink "$exe" 2>/dev/null)" = "$binary" ]; then exe=${exe#/proc/}; echo "${exe%/exe}"; fi
  done
}
left=''
tidy() {
  local pid
  "$here/scripts/slurm_down.sh" > /dev/null 2>&1 || true
  # Nothing may be left; a check that failed in the middle ends what it started.
  for pid in $(ours); do left="$left $pid"; kill -9 "$pid" 2>/dev/null || true; done
  rm -rf "$VIM_SLURM_DIR"
  [ -z "$temporary" ] || rm -rf "$temporary"
}
trap tidy EXIT

# Runs vim-train with its output in files, which are shown if it fails.
attempt() { # NAME ARGUMENTS…
  local name=$1 code=0
  shift
  "$binary" "$@" > "$work/$name.out" 2> "$work/$name.err" || code=$?
  [ "$code" = 0 ] || { tail -n 20 "$work/$name.err" >&2; fail "vim-train $* ended with exit code $code"; }
}

# --- the sweep, twice: only run.root differs, which no result depends on ---------------------------------------------------------
ask() { timeout 20 "$@"; }
config() { # ROOT EPOCHS, and GRID where it is not the file's
  cat > "$1.toml" <<TOML
extends = ["$here/configs/ablation/shapes.toml"]
[run]
root = "$1"
[train]
epochs = $2
[slurm]
partition = "low"
time = "00:10:00"
gpus_per_node = 0
cpus_per_task = 1
mem = "1G"
signal = "USR2@55"
on_interrupt = "requeue"
[sweep]
max_parallel = $(( 2 * jobs ))
${3:-}
TOML
}
one='seeds = [0]
grid = { "model.discretization" = '
# As many epochs as zoh takes eight seconds for, so that there is something to interrupt; other methods take up to ten times as long.
config "$work/trial" 4 "$one [\"zoh\"] }"
started=$(date +%s%3N)
attempt trial sweep run "$work/trial.toml" -j 1
took=$(( $(date +%s%3N) - started ))
epochs=$(( 4 * 8000 / took + 4 ))
say "zoh takes $took ms for 4 epochs: $epochs for each run"
grid=''
[ -z "$tiny" ] || grid="$one [\"zoh\", \"bilinear\"] }"
config "$work/local" "$epochs" "$grid"
config "$work/cluster" "$epochs" "$grid"

# The plan says which runs there are: "index name" a line.
runs() { # SWEEP'S FOLDER
  python3 -c '
import json, sys
for line in open(sys.argv[1] + "/plan.jsonl"):
    entry = json.loads(line)
    print(entry["index"], entry["name"])' "$1"
}
folder_of() { # ROOT: the one folder in it, which is the sweep's
  local folders=("$1"/*/plan.jsonl)
  [ -e "${folders[0]}" ] && [ "${#folders[@]}" = 1 ] || fail "no sweep, or several, in $1"
  dirname "${folders[0]}"
}

say "undisturbed: vim-train sweep run -j $jobs"
attempt run sweep run "$work/local.toml" -j "$jobs"
reference=$(folder_of "$work/local")
total=$(runs "$reference" | wc -l)
say "undisturbed: $total runs done"

"$here/scripts/slurm_up.sh" 2> "$work/slurm-up.log" || { cat "$work/slurm-up.log" >&2; fail "SLURM did not start"; }
# shellcheck disable=SC1091
. "$VIM_SLURM_DIR/env.sh"
say "SLURM $(ask sinfo --version | cut -d' ' -f2) is up: $(ask sinfo -h -o '%P:%c cores:%G' | tr '\n' ' ')"
attempt submit sweep submit "$work/cluster.toml"
sweep=$(folder_of "$work/cluster")
say "sweep submit: job $(tr '\n' ' ' < "$work/submit.out")"
[ "$(runs "$sweep")" = "$(runs "$reference")" ] || fail "the two plans differ"

# --- tasks -----------------------------------------------------------------------------------------------------------------------
array() { # the job of the last submission
  python3 -c '
import json, sys
print(json.loads(open(sys.argv[1] + "/slurm/jobs.jsonl").read().splitlines()[-1])["job"])' "$sweep"
}
first=$(array)
name_of() { runs "$sweep" | awk -v index_="$1" '$1 == index_ { print $2 }'; }
field() { # TASK NAME: of `scontrol show job`
  ask scontrol -o show job "${first}_$1" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1
}
running() { ask squeue -h -r -t RUNNING -p low -o '%K' | sort -n; }
# Tasks that were requeued wait for two minutes; their owner may end that, but not within the second of the requeue.
release() {
  local id began now
  now=$(date +%s)
  ask squeue -h -r -t PENDING -p low -o '%A %r' | while read -r id reason; do
    [ "$reason" = BeginTime ] || continue
    began=$work/began-$id
    [ -e "$began" ] || echo "$now" > "$began"
    if [ $(( now - $(cat "$began") )) -ge 4 ]; then
      ask scontrol update JobId="$id" StartTime=now 2>/dev/null || true
      rm -f "$began"
    fi
  done
}
complete() { # how many runs have ended well
  local name count=0
  for name in $(runs "$sweep" | cut -d' ' -f2); do
    if grep -q '"reason": *"finished"' "$sweep/$name/exit.json" 2>/dev/null; then count=$(( count + 1 )); fi
  done
  echo "$count"
}
until_true() { # SECONDS WHAT COMMAND…
  local deadline=$(( SECONDS + $1 )) what=$2
  shift 2
  until "$@"; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      ask squeue -r -t all -o '%.12i %.6K %.9P %.10T %.14r' >&2 || true
      fail "not in time: $what ($(complete) of $total runs complete)"
    fi
    sleep 1
    release
  done
}
touched=' '
# A running task that was not interrupted yet, with a checkpoint and some steps left.
fresh=''
find_fresh() {
  local task name
  for task in $(running); do
    case "$touched" in *" $task "*) continue ;; esac
    name=$(name_of "$task")
    compgen -G "$sweep/$name/checkpoints/step-*" > /dev/null || continue
    grep -q '"test"' "$sweep/$name/metrics.jsonl" && continue
    fresh=$task
    return 0
  done
  return 1
}
pick() { # WHAT FOR: sets `fresh`
  until_true 300 "a task to $1" find_fresh
  touched="$touched$fresh "
}
# Kills such a task, whose process may have ended since.
kill_fresh() { # sets `fresh` and `pid`
  find_fresh || return
  for pid in $(ours); do
    { tr '\0' ' ' < "/proc/$pid/cmdline"; } 2>/dev/null | grep -q -- "--index $fresh " || continue
    kill -9 "$pid" 2>/dev/null || continue
    touched="$touched$fresh "
    return
  done
  return 1
}
restarted() { [ "$(field "$1" Restarts)" -ge 1 ] 2>/dev/null; }
state_is() { [ "$(field "$1" JobState)" = "$2" ]; }
# A minute is the shortest limit; the warning comes 55 s before its end, but SLURM looks only every half a minute, and a task may
# have ended by then. So every task that starts meanwhile gets the same limit: some run when it looks.
late=''
lower_limit() { # adds `fresh` to `late`
  touched="$touched$fresh "
  late="$late $fresh"
  ask scontrol update JobId="${first}_$fresh" TimeLimit=1
  say "task $fresh ($(name_of "$fresh")): time limit lowered to a minute, USR2 55 s before"
}
one_was_warned() { # sets `fresh`
  local task
  for task in $late; do
    if restarted "$task"; then fresh=$task; return 0; fi
  done
  if find_fresh; then lower_limit; fi
  return 1
}
any_restarted() {
  local task
  for task in $(runs "$sweep" | cut -d' ' -f1); do
    case "$touched" in *" $task "*) continue ;; esac
    if restarted "$task"; then fresh=$task; return 0; fi
  done
  return 1
}

if [ -z "$tiny" ]; then
  # First, because SLURM chooses which task it preempts.
  until_true 300 "a task to preempt" find_fresh
  cores=$(ask sinfo -h -p high -o '%c')
  taken=$(running | wc -l)
  ask sbatch --parsable -p high -c "$(( cores - taken + 1 ))" --mem=1G -o /dev/null --wrap 'sleep 1' > "$work/high"
  say "job $(cat "$work/high") in the partition high asks for $(( cores - taken + 1 )) of $cores cores"
  until_true 90 "a task preempted" any_restarted
  touched="$touched$fresh "
  say "task $fresh ($(name_of "$fresh")): preempted and requeued"

  pick "reach its time limit"
  lower_limit

  pick "cancel"; cancelled=$fresh
  ask scancel "${first}_$cancelled"
  say "task $cancelled ($(name_of "$cancelled")): scancel"

  until_true 300 "a task to kill" kill_fresh; killed=$fresh
  say "task $killed ($(name_of "$killed")): kill -9 $pid"

  until_true 60 "task $cancelled cancelled" state_is "$cancelled" CANCELLED
  until_true 60 "task $killed failed" state_is "$killed" FAILED
  say "task $cancelled is CANCELLED, task $killed FAILED ($(field "$killed" ExitCode))"
  attempt retry sweep retry "$sweep" --failed --missing --submit
  say "sweep retry --failed --missing --submit: job $(tr '\n' ' ' < "$work/retry.out")"
  again=$(array)
  [ "$again" != "$first" ] || fail "sweep retry submitted nothing"

  pick "requeue"; requeued=$fresh
  ask scontrol requeue "${first}_$requeued"
  say "task $requeued ($(name_of "$requeued")): scontrol requeue"
  until_true 60 "task $requeued requeued" restarted "$requeued"

  until_true 120 "a task at its time limit" one_was_warned
  warned=$fresh
  for task in $late; do ask scontrol update JobId="${first}_$task" TimeLimit=10 2> /dev/null || true; done
  say "task $warned has requeued itself"
else
  pick "requeue"
  ask scontrol requeue "${first}_$fresh"
  say "task $fresh ($(name_of "$fresh")): scontrol requeue"
fi

# --- the end ---------------------------------------------------------------------------------------------------------------------
all_complete() { [ "$(complete)" = "$total" ]; }
idle() { [ -z "$(ask squeue -h -o %A)" ]; }
until_true 1800 "all runs complete" all_complete
until_true 60 "no job left" idle
say "all $total runs are complete"
"$binary" sweep status "$sweep"
"$binary" slurm logs "$sweep" --task 0 | grep 'test top-1' > /dev/null || fail "slurm logs $sweep --task 0 does not show the first run's output"

different=0
while read -r _ name; do
  if cmp "$reference/$name/metrics.jsonl" "$sweep/$name/metrics.jsonl"; then
    records=$(wc -l < "$sweep/$name/metrics.jsonl")
    say "$name: metrics.jsonl, $records records, the same bytes"
  else
    different=$(( different + 1 ))
  fi
done < <(runs "$sweep")
[ "$different" = 0 ] || fail "$different of $total metrics.jsonl differ from the undisturbed runs'"

attempt table-local sweep summarize "$reference" --md
attempt table-cluster sweep summarize "$sweep" --md
# But for the clock's column.
without_minutes() {
  awk -F'|' '/minutes/ { for (i = 1; i <= NF; i++) if ($i ~ /minutes/) at = i } at && NF > 1 { $at = "" } 1' "$1"
}
diff <(without_minutes "$work/table-local.out") <(without_minutes "$work/table-cluster.out") >&2 ||
  fail "the tables of sweep summarize differ"
cat "$work/table-cluster.out"
say "the table is the same as the undisturbed runs'"

tidy
trap - EXIT
[ -z "$left" ] || fail "processes were left:$left"
say "all shown; nothing left running"

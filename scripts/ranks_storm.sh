#!/usr/bin/env bash
# Tests that no fault of a rank changes a run's results: kills, stops, delays and parts ranks, and compares bytes.
#
#   scripts/ranks_storm.sh BINARY                   all of it; BINARY is a vim-train, of any build
#   scripts/ranks_storm.sh BINARY --short           a few of each, within a minute
#   scripts/ranks_storm.sh BINARY --only rank,stop  these faults alone
#   scripts/ranks_storm.sh BINARY --kills 10        SIGKILLs of a rank, instead of 20
#   scripts/ranks_storm.sh BINARY --ranks 2         ranks, instead of 4
#   scripts/ranks_storm.sh BINARY --epochs 160      a longer run, for a fast device, which would end before its kills
#   scripts/ranks_storm.sh BINARY --keep DIR        works in DIR, and leaves it there
#   scripts/ranks_storm.sh BINARY --set devices.backend=cuda    on GPUs; any key, any number of times
#
#   rank         SIGKILL of a random rank, at random moments, on all ranks and on half of them in turns
#   supervisor   SIGKILL of the process that started the ranks: the ranks end with it
#   term         SIGTERM to one rank: all save and stop
#   stop         SIGSTOP of a rank: the others notice, and end it
#   finite       a loss that is not finite at one rank, once an epoch: all skip the step
#   late         a rank that starts 20 s late: the others wait
#   builds       ranks of two builds: refused
#   disk         no room for a checkpoint at rank 0; mounts a tmpfs, which needs root
#
# Each fault is followed by attempts that go on where it ended, to the end. Then metrics.jsonl and the final weights
# must be those of an undisturbed run on one rank, byte by byte. The last lines are a table of what was seen.
#
# Exit code: 0 everything passed; 1 a difference or another failure; 3 what ran passed, but something could not be
# run. SEED=number repeats a storm's moments.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

. "$here/scripts/storm_parts.sh"

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; }

binary='' kills=20 supervisors=5 ranks=4 epochs=40 late=20 work='' given=(--set devices.backend=cpu)
faults=rank,supervisor,term,stop,finite,late,builds,disk
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --short) kills=2 supervisors=1 epochs=8 late=3 faults=${faults%,disk}; shift ;;
    --kills | --ranks | --epochs | --only | --keep | --set)
      [ $# -ge 2 ] || { echo "error: $1 needs a value" >&2; exit 2; }
      case "$1" in
        --kills) kills=$2 ;; --ranks) ranks=$2 ;; --epochs) epochs=$2 ;; --only) faults=$2 ;; --keep) work=$2 ;;
        --set) given+=(--set "$2") ;;
      esac
      shift 2 ;;
    -*) echo "error: unknown argument $1; --help says what there is" >&2; exit 2 ;;
    *) binary=$1; shift ;;
  esac
done
for number in "$kills" "$epochs"; do
  case "$number" in '' | 0* | *[!0-9]*) echo "error: --kills and --epochs take a number from 1 on, not '$number'" >&2; exit 2 ;; esac
done
case "$ranks" in 2 | 4 | 8) ;; *) echo "error: --ranks takes 2, 4 or 8, not '$ranks'" >&2; exit 2 ;; esac
[ -x "$binary" ] || { echo "error: name a vim-train binary, as target/release/vim-train" >&2; exit 2; }
binary=$(realpath "$binary")

mount='' child='' temporary=''
tidy() {
  [ -z "$child" ] || kill -9 "$child" 2>/dev/null || true
  [ -z "$mount" ] || umount "$mount" || true
  [ -z "$temporary" ] || rm -rf "$temporary"
}
if [ -z "$work" ]; then work=$(mktemp -d); temporary=$work; fi
trap tidy EXIT
mkdir -p "$work"
[ -z "$(ls -A "$work")" ] || fail "$work is not empty"
seed=${SEED:-$(( $(date +%s) % 32768 ))}
RANDOM=$seed

# One thread for each rank, and a model for which a step takes a while, so that kills fall everywhere in it.
lost=3
settings=(--set model.d_model=64 --set devices.threads=1 --set data.workers=1 --set "train.shards=$ranks"
  --set "train.epochs=$epochs" --set train.eval_every=4ep --set "checkpoint.every=${lost}st")
train() { # NAME RANKS [more arguments]
  local name=$1 world=(--ranks "$2")
  [ "$2" != 1 ] || world=()
  shift 2
  exec env -u VIM_USE_CUDA_KERNEL "$binary" train "$here/configs/debug.toml" "${settings[@]}" --set "run.root=$work/runs" \
    --set "run.name=$name" "${given[@]}" "${world[@]}" "$@"
}
start() { # NAME RANKS [more arguments]: in the background, as $child
  : > "$work/attempt.out"
  (train "$@") > "$work/attempt.out" 2>&1 &
  child=$!
}
whole_run() { # NAME RANKS [more arguments]: must end well
  (train "$@") > "$work/attempt.out" 2>&1 || { cat "$work/attempt.out"; fail "$1 on $2 ranks"; }
}

# The ranks of a process, dead ones left out: lines of `rank process`.
ranks_of() { # PROCESS
  local file
  for file in $(grep -lsa "\"supervisor\":$1[,}]" /proc/[0-9]*/cmdline); do
    file=${file%/cmdline}
    echo "$(tr '\0' '\n' 2>/dev/null < "$file/cmdline" | sed -n 's/.*"rank":\([0-9]*\).*/\1/p') ${file##*/}"
  done | sort -n
}

# What a fault came to.
table=() status=0
begin() { fault=$1 attempts=0 hangs=0 beyond=0 orphans=0 bytes=- problem='' unable=''; }
wrong() { problem=${problem:-$1}; echo "WRONG: $fault: $1"; tail -n 5 "$work/attempt.out"; }
conclude() {
  [ -z "$problem" ] && [ "$hangs" = 0 ] && [ "$orphans" = 0 ] && [ "$beyond" = 0 ] || status=1
  [ -z "$unable" ] || missing=1
  table+=("$(printf '%-12s%9s%7s%8s%9s  %-9s  %s' "$fault" "$attempts" "$hangs" "$beyond" "$orphans" "$bytes" "${problem:-${unable:-as it should be}}")")
}
finish() { # SECONDS: waits for the end of $child and of its ranks; sets code
  local until=$(( SECONDS + $1 )) left
  # The shell says of each that was killed that it was.
  while kill -0 "$child" && [ "$SECONDS" -lt "$until" ]; do sleep 0.02; done 2> /dev/null
  if kill -0 "$child" 2>/dev/null; then
    hangs=$(( hangs + 1 ))
    wrong "it hangs for $1 s"
    kill -9 "$child"
  fi
  code=0
  wait "$child" 2>/dev/null || code=$?
  until=$(( SECONDS + 15 ))
  while left=$(ranks_of "$child") && [ -n "$left" ] && [ "$SECONDS" -lt "$until" ]; do sleep 0.05; done
  if [ -n "$left" ]; then
    orphans=$(( orphans + $(echo "$left" | wc -l) ))
    wrong "ranks are left after 15 s"
    echo "$left" | while read -r _ process; do kill -9 "$process"; done
  fi
  child=''
}
ends_with() { # CODE [WORDS]: how the last attempt ended
  [ "$code" = "$1" ] || wrong "exit code $code, not $1"
  [ -z "${2:-}" ] || grep -q -- "$2" "$work/attempt.out" || wrong "it does not say: $2"
}
count_lost() { # NAME: the steps that it has to repeat
  local after gone
  after=$(newest "$work/runs/$1"); after=${after:-0}
  gone=$(( $(reached "$work/runs/$1") - after ))
  # One save may be in flight while the steps to the next are made.
  (( gone - 2 * lost > beyond )) && beyond=$(( gone - 2 * lost ))
  return 0
}
to_the_end() { # NAME: goes on, and compares
  start "$1" "$ranks" --resume must
  finish 600
  ends_with 0
  attempts=$(( attempts + 1 ))
  bytes=equal
  same "$work/runs/whole" "$work/runs/$1" || { bytes=DIFFERENT; wrong 'other bytes than undisturbed'; }
}
# Moments are counted in steps, as the pace of a machine changes.
at_a_step() { # NAME STEPS: waits until $child has made about STEPS more, and a random moment; false if it ended before
  local folder=$work/runs/$1 until=$(( SECONDS + 600 )) step
  step=$(( $(newest "$folder") + $2 ))
  until [ "$(reached "$folder")" -ge "$step" ] && grep -qs '^first step after' "$work/attempt.out"; do
    if [ "$SECONDS" -ge "$until" ] || ! kill -0 "$child" 2>/dev/null; then break; fi
    sleep 0.005
  done
  pause $(( RANDOM % 50 ))
  kill -0 "$child" 2>/dev/null && return
  wrong 'it ended before its fault: give more --epochs'
  finish 60
  return 1
}

# Undisturbed, on one rank and on all. A first step compiles a GPU's kernels, whose time must not count.
whole_run first 1 --steps 1
whole_run whole 1
total=$(newest "$work/runs/whole")
begun=$(now)
start shared "$ranks"
first_step || { cat "$work/attempt.out"; fail "the undisturbed run on $ranks ranks"; }
startup=$(( $(now) - begun ))
begun=$(now)
begin undisturbed
finish 600
stepping=$(( $(now) - begun ))
same "$work/runs/whole" "$work/runs/shared" || fail "$ranks ranks give other bytes than one"
echo "undisturbed: the first of $total steps on $ranks ranks after $startup ms, the others in $stepping ms; SEED=$seed"

# Attempts that are killed should do less than their share of the steps, else nothing is left to kill.
kill_often() { # NAME COUNT: SIGKILLs of a rank, or of the supervisor
  local name=$1 count=$2 attempt world victim all
  share=$(( total / 2 / (count + 1) ))
  for attempt in $(seq "$count"); do
    attempts=$(( attempts + 1 ))
    world=$(( attempt % 3 == 0 ? ranks / 2 : ranks ))
    [ "$world" -gt 1 ] || world=$ranks
    start "$name" "$world" --resume auto
    at_a_step "$name" $(( RANDOM % (2 * share + 1) )) || return
    if [ "$name" = supervisor ]; then
      kill -9 "$child"
      finish 30
      ends_with 137
    else
      mapfile -t all < <(ranks_of "$child")
      victim=${all[$(( RANDOM % world ))]:-}
      [ -n "$victim" ] || { wrong "there are no ranks"; finish 60; return; }
      kill -9 "${victim#* }"
      finish 30
      ends_with 69 "rank ${victim% *} (node .*) was killed by signal 9"
    fi
    count_lost "$name"
  done
}

rank() { kill_often rank "$kills"; to_the_end rank; }
supervisor() { kill_often supervisor "$supervisors"; to_the_end supervisor; }

one_of() { # NAME SIGNAL: sends it to the last rank of a run that is at work
  start "$1" "$ranks" "${@:3}"
  attempts=1
  at_a_step "$1" $(( RANDOM % (total / 2) )) || return
  kill "-$2" "$(ranks_of "$child" | tail -n 1 | cut -d ' ' -f 2)"
}

term() {
  one_of term TERM || return
  finish 30
  ends_with 75
  count_lost term
  to_the_end term
}

stop() {
  # Six seconds without progress.
  one_of stop STOP --set devices.timeout=0.1min || return
  finish 40
  ends_with 69 'no progress for 6 s (devices.timeout)'
  count_lost stop
  to_the_end stop
}

late() {
  attempts=1
  start late "$ranks"
  local last=''
  while kill -0 "$child" 2>/dev/null; do
    last=$(ranks_of "$child" | grep "^$(( ranks - 1 )) " | cut -d ' ' -f 2)
    [ -z "$last" ] || break
  done
  kill -STOP "$last"
  sleep "$late"
  kill -CONT "$last"
  finish 600
  ends_with 0
  bytes=equal
  same "$work/runs/whole" "$work/runs/late" || { bytes=DIFFERENT; wrong 'other bytes than undisturbed'; }
}

builds() {
  local commit other all one first
  commit=$(sed -n 's/.*"commit": *"\([0-9a-f]\{40\}\)".*/\1/p' "$work/runs/whole/env.json")
  [ -n "$commit" ] || { unable='NOT RUN: this build has no commit'; return; }
  # The same program, which says that it was built from another commit.
  other=$(echo "$commit" | tr 0-9a-f 1-9a-f0)
  LC_ALL=C sed "s/$commit/$other/g" "$binary" > "$work/other"
  chmod +x "$work/other"
  # What a supervisor of this build tells its two ranks, for two processes that this script starts in its place.
  attempts=1
  start builds 2
  while kill -0 "$child" 2>/dev/null && [ "$(ranks_of "$child" | wc -l)" -lt 2 ]; do :; done
  mapfile -t all < <(ranks_of "$child")
  words() { # RANK: its --rank, with this process as its supervisor and a folder of its own
    tr '\0' '\n' < "/proc/${all[$1]#* }/cmdline" | tail -n 1 |
      sed "s|\"supervisor\":[0-9]*|\"supervisor\":$$|; s|\"folder\":\"[^\"]*\"|\"folder\":\"$work/meeting\"|"
  }
  one=$(words 0) other=$(words 1)
  kill -9 "$child"
  finish 30
  rm -rf "$work/runs/builds"
  # The first is in the background; both have this script as their parent.
  (train builds 2 --rank "$one") > "$work/first.out" 2>&1 &
  first=$!
  (binary=$work/other; train builds 2 --rank "$other") > "$work/attempt.out" 2>&1 &
  child=$!
  finish 60
  ends_with 69 'the ranks do not fit together: .* has the build '
  code=0
  wait "$first" 2>/dev/null || code=$?
  [ "$code" = 69 ] || wrong "rank 0 of another build ended with $code, not 69"
  [ ! -e "$work/runs/builds" ] || wrong 'it made a folder of a run'
}

grey_images() { # FOLDER: 63 images of one class and one of another, and as many to validate on
  python3 - "$1" <<'PYTHON'
import pathlib, struct, sys, zlib

def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

for part in ("train", "val"):
    for number in range(64):
        folder = pathlib.Path(sys.argv[1], part, "b" if number == 41 else "a")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = b"".join(b"\0" + bytes([4 * number]) * 32 for _ in range(32))
        head = struct.pack(">IIBBBBB", 32, 32, 8, 0, 0, 0, 0)
        content = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
        (folder / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
PYTHON
}
without_second_class() { # WEIGHTS OUT: whose logit is minus infinity
  python3 - "$1" "$2" <<'PYTHON'
import json, pathlib, struct, sys

content = bytearray(pathlib.Path(sys.argv[1]).read_bytes())
(length,) = struct.unpack("<Q", content[:8])
begin = 8 + length + json.loads(content[8 : 8 + length])["head.bias"]["data_offsets"][0]
content[begin + 4 : begin + 8] = struct.pack("<f", float("-inf"))
pathlib.Path(sys.argv[2]).write_bytes(content)
PYTHON
}
finite() {
  # One image has a class whose logit is minus infinity: only its shard has a loss that is not finite.
  local total=$(( 2 * epochs )) keys=(--set data.dataset=folder --set "data.path=$work/images" --set augment.preset=none --set train.batch_size=32
    --set train.label_smoothing=0 --set train.eval_every=1000ep)
  grey_images "$work/images"
  whole_run broken-weights 1 "${keys[@]}" --steps 1
  without_second_class "$work/runs/broken-weights/checkpoints/step-00000001/model.safetensors" "$work/broken.safetensors"
  keys+=(--set "train.init=$work/broken.safetensors" --set train.non_finite=skip)
  whole_run broken 1 "${keys[@]}"
  attempts=1
  start finite "$ranks" "${keys[@]}"
  finish 600
  ends_with 0
  bytes=equal
  same "$work/runs/broken" "$work/runs/finite" || { bytes=DIFFERENT; wrong 'other bytes than on one rank'; }
  local skipped
  skipped=$(grep -c '"kind":"skipped"' "$work/runs/finite/metrics.jsonl")
  [ "$skipped" = "$epochs" ] || wrong "$skipped steps were skipped, not one of each of $epochs epochs"
}

disk() {
  local folder=$work/disk
  mkdir "$folder"
  if ! mount -t tmpfs -o size=64m vim-train "$folder" 2> "$work/attempt.out"; then
    unable='NOT RUN: no tmpfs can be mounted, run this as root'
    return
  fi
  mount=$folder
  attempts=2
  whole_run disk "$ranks" --set "run.root=$folder" --steps 4
  fill_disk "$folder"
  start disk "$ranks" --set "run.root=$folder" --resume auto
  finish 60
  ends_with 74
  [ "$(grep -c '^error: ' "$work/attempt.out")" = 1 ] || wrong 'not one line'
  rm "$folder/ballast"
  start disk "$ranks" --set "run.root=$folder" --resume must
  finish 600
  ends_with 0
  bytes=equal
  same "$work/runs/whole" "$folder/disk" || { bytes=DIFFERENT; wrong 'other bytes than undisturbed'; }
}

missing=0
IFS=, read -ra chosen <<< "$faults"
for fault in "${chosen[@]}"; do
  case "$fault" in rank | supervisor | term | stop | finite | late | builds | disk) ;; *) fail "no fault is called $fault; --help has them" ;; esac
  begin "$fault"
  begun=$SECONDS
  "$fault"
  echo "$fault: $(( SECONDS - begun )) s"
  conclude
done

printf '\n%-12s%9s%7s%8s%9s  %-9s  %s\n' fault attempts hangs 'lost +' orphans bytes outcome
printf '%s\n' "${table[@]}"
echo "lost +: steps lost beyond two of checkpoint.every = ${lost}st, of which one may be in flight"
[ "$status" = 0 ] || exit 1
[ "$missing" = 0 ] || exit 3
echo "all of it shown"

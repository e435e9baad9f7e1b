#!/usr/bin/env bash
# Tests that kills do not change a run's results: kills it, damages it, fills its disk, and compares bytes.
#
#   scripts/kill_storm.sh BINARY                    50 kills; BINARY is a vim-train, of any build
#   scripts/kill_storm.sh BINARY --kills 200        more
#   scripts/kill_storm.sh BINARY --epochs 160       a longer run, for a fast GPU, which would end before its kills
#   scripts/kill_storm.sh BINARY --config FILE      another configuration than configs/debug.toml, with some epochs of a few steps
#   scripts/kill_storm.sh BINARY --keep DIR         works in DIR, and leaves it there
#   scripts/kill_storm.sh BINARY --set devices.backend=cuda     on a GPU; any key, any number of times
#
# 1. An undisturbed run, on the CPU unless --set says otherwise.
# 2. The same run, ended by SIGKILL at random moments, every other time inside a save, now and then with a byte
#    flipped in its newest checkpoint; each attempt continues where the one before stopped.
# 3. The same run on a disk without room for a checkpoint, and 4. on one that is read-only: each must end by itself
#    with exit code 74 and one line, and then continue once the disk is usable again.
# After each, metrics.jsonl and the final checkpoint's weights (with the running statistics of batch normalizations), moving
# average and optimizer must be those of the undisturbed run, byte by byte.
#
# Exit code: 0 everything passed; 1 a difference or another failure; 3 what ran passed, but 3 and 4 could not be
# run: they mount a tmpfs, which needs root. SEED=number repeats a storm's moments.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

. "$here/scripts/storm_parts.sh"

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; }

binary='' config=$here/configs/debug.toml kills=50 epochs=40 work='' given=(--set devices.backend=cpu)
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --kills | --epochs | --config | --keep | --set)
      [ $# -ge 2 ] || { echo "error: $1 needs a value" >&2; exit 2; }
      case "$1" in --kills) kills=$2 ;; --epochs) epochs=$2 ;; --config) config=$2 ;; --keep) work=$2 ;; --set) given+=(--set "$2") ;; esac
      shift 2 ;;
    -*) echo "error: unknown argument $1; --help says what there is" >&2; exit 2 ;;
    *) binary=$1; shift ;;
  esac
done
for number in "$kills" "$epochs"; do
  case "$number" in '' | 0* | *[!0-9]*) echo "error: --kills and --epochs take a number from 1 on, not '$number'" >&2; exit 2 ;; esac
done
[ -x "$binary" ] || { echo "error: name a vim-train binary, as target/release/vim-train" >&2; exit 2; }
binary=$(realpath "$binary")

mount='' child=''
tidy() {
  [ -z "$child" ] || kill -9 "$child" 2>/dev/null || true
  [ -z "$mount" ] || umount "$mount" || true
  [ -z "$temporary" ] || rm -rf "$temporary"
}
temporary=''
if [ -z "$work" ]; then work=$(mktemp -d); temporary=$work; fi
trap tidy EXIT
mkdir -p "$work"
[ -z "$(ls -A "$work")" ] || fail "$work is not empty"
seed=${SEED:-$(( $(date +%s) % 32768 ))}
RANDOM=$seed

# One thread, and a model for which a step takes a while, so that kills fall everywhere in it.
lost=3
settings=(--set "run.root=$work" --set model.d_model=64 --set devices.threads=1 --set data.workers=1
  --set "train.epochs=$epochs" --set train.eval_every=4ep --set "checkpoint.every=${lost}st" --set "checkpoint.archive=$(( (epochs + 3) / 4 ))ep" "${given[@]}")
train() { # NAME [more arguments]
  local name=$1; shift
  exec env -u VIM_USE_CUDA_KERNEL "$binary" train "$config" "${settings[@]}" --set "run.name=$name" "$@"
}
compare() { # NAME FOLDER: what must be as in the undisturbed run
  same "$work/whole" "$2" || fail "$1: it differs"
  echo "$1: metrics.jsonl ($(wc -l < "$2/metrics.jsonl") records), final weights, average and optimizer are the same bytes"
}

# 1. Undisturbed. A first step compiles a GPU's kernels, whose time must not count as an attempt's.
(train first --steps 1) > "$work/attempt.out" 2>&1 || { cat "$work/attempt.out"; fail "a first step"; }
: > "$work/attempt.out"
begun=$(now)
(train whole) > "$work/attempt.out" 2>&1 &
child=$!
first_step || { cat "$work/attempt.out"; fail "the undisturbed run"; }
startup=$(( $(now) - begun ))
begun=$(now)
wait "$child" || { cat "$work/attempt.out"; fail "the undisturbed run"; }
child=''
stepping=$(( $(now) - begun ))
total=$(newest "$work/whole")
echo "undisturbed: the first of $total steps after $startup ms, the others in $stepping ms; SEED=$seed"

# 2. The storm.
run=$work/storm
# An attempt should do a little less than its share of the steps, else nothing would be left to kill.
share=$(( stepping * 2 / 3 / (kills + 1) ))
[ "$share" -ge 1 ] || fail "$kills kills are too many for $stepping ms of steps: give more --epochs"
inside=0 flipped=0 passed=0 worst=0
for attempt in $(seq 1 "$kills"); do
  before=$(newest "$run"); before=${before:-0}
  log_from=0
  if [ -f "$run/log.txt" ]; then log_from=$(wc -l < "$run/log.txt"); fi
  what='at a random moment'
  damaged=''
  if (( attempt % 5 == 0 )) && [ "$(steps_of "$run" | wc -l)" -ge 2 ]; then
    damaged=$(printf '%s/checkpoints/step-%08d' "$run" "$before")
    files=("$damaged"/*); file=${files[$(( RANDOM % ${#files[@]} ))]}
    at=$(( (RANDOM * 32768 + RANDOM) % $(stat -c %s "$file") ))
    byte=$(od -An -tu1 -j "$at" -N 1 "$file")
    # shellcheck disable=SC2059
    printf "\\x$(printf %02x $(( byte ^ (1 << RANDOM % 8) )))" | dd of="$file" bs=1 seek="$at" conv=notrunc status=none
    flipped=$(( flipped + 1 ))
    before=$(steps_of "$run" | tail -n 2 | head -n 1)
  fi
  : > "$work/attempt.out"
  (train storm --resume auto) > "$work/attempt.out" 2>&1 &
  child=$!
  when='of steps'
  delay=$(( RANDOM % (2 * share + 1) ))
  # The first attempts may also be killed before their first step.
  if (( attempt <= 3 )); then
    when='in all'
    delay=$(( RANDOM % (startup + 1) ))
  else
    first_step || true
  fi
  pause "$delay"
  if (( attempt % 2 == 0 )); then
    # Inside a save: as soon as its folder appears, which it should within the steps between two.
    until=$(( $(now) + 2 * lost * stepping / total + 100 ))
    until compgen -G "$run/checkpoints/.tmp-*" > /dev/null || [ "$(now)" -ge "$until" ]; do
      kill -0 "$child" 2>/dev/null || break
    done
  fi
  if ! kill -9 "$child" 2>/dev/null; then
    code=0; wait "$child" || code=$?
    cat "$work/attempt.out"; fail "attempt $attempt ended by itself with exit code $code"
  fi
  wait "$child" 2>/dev/null || true
  child=''
  if compgen -G "$run/checkpoints/.tmp-*" > /dev/null; then what='inside a save'; inside=$(( inside + 1 )); fi
  grep -q '^error' "$work/attempt.out" && { cat "$work/attempt.out"; fail "attempt $attempt"; }
  said=''
  if [ -f "$run/log.txt" ]; then
    said=$(tail -n "+$(( log_from + 1 ))" "$run/log.txt" | sed -n 's/^resumed at step //p')
  fi
  if [ -n "$said" ] && [ "$said" != "$before" ]; then fail "attempt $attempt went on at step $said, not $before"; fi
  if [ -n "$damaged" ]; then
    if [ -n "$said" ]; then
      tail -n "+$(( log_from + 1 ))" "$run/log.txt" | grep -q 'is damaged' || fail "attempt $attempt: nobody noticed the flipped byte"
      passed=$(( passed + 1 ))
    fi
    what+=", after a flipped byte in ${file#"$run/checkpoints/"}"
  fi
  after=$(newest "$run"); after=${after:-0}
  # Steps that the records have and no checkpoint has.
  recorded=$(reached "$run")
  gone=$(( recorded > after ? recorded - after : 0 ))
  (( gone > worst )) && worst=$gone
  printf 'attempt %2d: from step %3d, killed after %4d ms %s %s; checkpoint of step %d, at least %d steps to repeat\n' \
    "$attempt" "$before" "$delay" "$when" "$what" "$after" "$gone"
done
(train storm --resume auto) > "$work/attempt.out" 2>&1 || { cat "$work/attempt.out"; fail "the last attempt"; }
echo "storm: $kills kills, $inside of them inside a save, $flipped bytes flipped and $passed noticed in attempts long enough to report it"
# One save may be in flight while the steps to the next are made, so a kill costs two intervals at the very most.
echo "storm: at most $worst steps were lost; checkpoint.every is $lost"
(( worst <= 2 * lost )) || fail "more than what lies between two checkpoints was lost"
compare storm "$run"
[ "$(cat "$run/checkpoints/archive")" = "$(cat "$work/whole/checkpoints/archive")" ] || fail "the archives differ"
while read -r name; do [ -d "$run/checkpoints/$name" ] || fail "$name of the archive is gone"; done < "$run/checkpoints/archive"

# 3 and 4. Disks.
ends_with_74() { # WHAT NAME
  local code=0
  (train "$2" --resume auto --set "run.root=$disk") > "$work/attempt.out" 2>&1 || code=$?
  [ "$code" = 74 ] || { cat "$work/attempt.out"; fail "$1: exit code $code, not 74"; }
  [ "$(grep -c '^error: ' "$work/attempt.out")" = 1 ] || { cat "$work/attempt.out"; fail "$1: not one line"; }
  echo "$1: exit code 74, $(grep '^error: ' "$work/attempt.out")"
}
disk=$work/disk
mkdir "$disk"
# Room for the files of a run, and for some more checkpoints.
room=$(( $(du -sm "$work/whole" | cut -f 1) * 2 + 32 ))
if ! mount -t tmpfs -o "size=${room}m" vim-train "$disk" 2> "$work/mount.out"; then
  echo "NOT RUN: 2 of 4 parts, the full disk and the read-only one: no tmpfs can be mounted here ($(head -n 1 "$work/mount.out")); run this as root"
  exit 3
fi
mount=$disk
(train full --set "run.root=$disk" --steps 4) > "$work/attempt.out" 2>&1 || { cat "$work/attempt.out"; fail "a run on a tmpfs"; }
kept=$(newest "$disk/full")
fill_disk "$disk"
ends_with_74 'full disk' full
[ "$(newest "$disk/full")" -ge "$kept" ] || fail "full disk: the checkpoint of step $kept is gone"
rm "$disk/ballast"
(train full --resume must --set "run.root=$disk") > "$work/attempt.out" 2>&1 || { cat "$work/attempt.out"; fail "with room again"; }
compare 'full disk, then room' "$disk/full"
rm -r "$disk/full"

(train read-only --set "run.root=$disk" --steps 4) > "$work/attempt.out" 2>&1 || { cat "$work/attempt.out"; fail "a run on a tmpfs"; }
mount -o remount,ro "$disk"
ends_with_74 'read-only disk' read-only
mount -o remount,rw "$disk"
(train read-only --resume must --set "run.root=$disk") > "$work/attempt.out" 2>&1 || { cat "$work/attempt.out"; fail "once it may be written"; }
compare 'read-only disk, then not' "$disk/read-only"
echo "all of it shown"

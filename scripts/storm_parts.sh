# What kill_storm.sh and ranks_storm.sh share; sourced by both, which set `work`, `child` and `total`.
# shellcheck shell=bash

fail() { echo "FAILED: $1" >&2; exit 1; }
now() { date +%s%3N; }

steps_of() { # FOLDER: the steps of its checkpoints, ascending
  local path
  for path in "$1"/checkpoints/step-*; do
    if [ -d "$path" ]; then echo "$((10#${path##*-}))"; fi
  done | sort -n
}
newest() { steps_of "$1" | tail -n 1; }

reached() { # FOLDER: the last step in its records; 0 if there is none
  local step=''
  if [ -f "$1/metrics.jsonl" ]; then
    step=$(sed -n 's/.*"kind":"train","step":\([0-9]*\),.*/\1/p' "$1/metrics.jsonl" | tail -n 1)
  fi
  echo "${step:-0}"
}

same() { # FOLDER OTHER: whether records, final weights, their average and the optimizer are the same bytes; names the first
  # file that is not
  local file last files
  last=$(printf 'checkpoints/step-%08d' "$total")
  files=(metrics.jsonl "$last/model.safetensors" "$last/optimizer.safetensors")
  if [ -e "$1/$last/ema.safetensors" ]; then files+=("$last/ema.safetensors"); fi
  for file in "${files[@]}"; do
    cmp "$1/$file" "$2/$file" || return
  done
}

# A process may take longer to start than for all its steps: times count from its first step.
first_step() { # waits for that of $child; false if there is none, within ten minutes
  local until=$(( SECONDS + 600 ))
  until grep -qs '^first step after' "$work/attempt.out"; do
    if [ "$SECONDS" -ge "$until" ] || ! kill -0 "$child" 2>/dev/null; then return 1; fi
    sleep 0.005
  done
}

pause() { sleep "$(printf '%d.%03d' $(( $1 / 1000 )) $(( $1 % 1000 )))"; } # MILLISECONDS

fill_disk() { # FOLDER: leaves room for records there, not for a checkpoint
  dd if=/dev/zero of="$1/ballast" bs=4k status=none 2>/dev/null || true
  truncate -s -96k "$1/ballast"
}

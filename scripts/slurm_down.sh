#!/usr/bin/env bash
# Stops the SLURM that scripts/slurm_up.sh started: its jobs first, then its daemons, each by its own pid file.
#
#   scripts/slurm_down.sh            stops it; its folder $VIM_SLURM_DIR (/tmp/vim-train-slurm) stays, for its logs
#   scripts/slurm_down.sh --purge    and removes the folder, if it is one below /tmp or /var/tmp
#
# A batch script whose slurmstepd was killed outlives its cluster. Such processes are found by the folder on their
# command line and ended, with their children, each by its number.
set -uo pipefail

dir=${VIM_SLURM_DIR:-/tmp/vim-train-slurm}
export SLURM_CONF=$dir/slurm.conf
say() { echo "slurm_down: $*" >&2; }
purge=''
case ${1:-} in
  '') ;;
  --purge) purge=1 ;;
  -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) say "unknown argument $1; --help says what there is"; exit 2 ;;
esac

is() { # PID PROGRAM: whether that process runs that program
  [ -n "${1:-}" ] && grep -q "$2" "/proc/$1/cmdline" 2>/dev/null
}

# 1. The jobs, while the controller still answers.
if is "$(cat "$dir/slurmctld.pid" 2>/dev/null)" slurmctld; then
  mapfile -t jobs < <(timeout 10 squeue -h -o %A 2>/dev/null | sort -u)
  if [ "${#jobs[@]}" -gt 0 ]; then
    timeout 20 scancel "${jobs[@]}" 2>/dev/null
    timeout 20 scancel -s KILL -f "${jobs[@]}" 2>/dev/null
  fi
  for _ in $(seq 1 30); do
    [ -z "$(timeout 5 squeue -h -o %A 2>/dev/null)" ] && break
    sleep 0.5
  done
fi

# 2. The daemons.
for file in "$dir"/slurmd-*.pid "$dir"/slurmctld.pid "$dir"/munged.pid; do
  pid=$(cat "$file" 2>/dev/null) || continue
  daemon=$(basename "$file" .pid)
  daemon=${daemon%-*}
  if is "$pid" "$daemon"; then
    kill -TERM "$pid"
    for _ in $(seq 1 40); do
      is "$pid" "$daemon" || break
      sleep 0.25
    done
    is "$pid" "$daemon" && { say "$daemon takes no notice, and is killed"; kill -KILL "$pid"; }
  fi
  rm -f "$file"
done

# 3. Processes of jobs that are left.
family() { # PID: its descendants, then itself
  local child
  for child in $(ps -o pid= --ppid "$1" 2>/dev/null); do family "$child"; done
  echo "$1"
}
for file in /proc/[0-9]*/cmdline; do
  pid=${file#/proc/}
  pid=${pid%/cmdline}
  [ "$pid" != $$ ] || continue
  { tr '\0' '\n' < "$file"; } 2>/dev/null | grep -q -F -- "$dir/spool/" || continue
  for member in $(family "$pid"); do
    say "left over from a job: $member $(ps -o args= -p "$member" | cut -c 1-80)"
    kill -KILL "$member" 2>/dev/null
  done
done

if [ -n "$purge" ]; then
  case $dir in
    /tmp/* | /var/tmp/*) rm -rf -- "$dir" ;;
    *) say "$dir is not below /tmp: not removed" ;;
  esac
fi
exit 0

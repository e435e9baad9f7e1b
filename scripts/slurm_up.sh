#!/usr/bin/env bash
# Brings up a real SLURM on the loopback of one Debian machine, without systemd, for tests.
#
#   scripts/slurm_up.sh            installs what is missing, starts the daemons, returns when the node is idle
#   scripts/slurm_up.sh --nodes 2  the same with two nodes, node1 and node2, of this one machine
#   . $VIM_SLURM_DIR/env.sh        points SLURM's commands at it (SLURM_CONF)
#   scripts/slurm_down.sh          cancels its jobs and stops its daemons
#
# It has what submission and signals need of a GPU cluster: a node has 16 cores, 64 GB and 4 GPUs of kind h100 (null
# devices), $SLURM_TMPDIR, requeueing, three partitions (main, the default; low, which high evicts after 15 s of
# grace), finished jobs that scontrol knows for an hour. It has no accounting: sacct says so.
#
# Run again, it says that all is up. Needs root: to install packages, and for slurmd. Changes outside
# $VIM_SLURM_DIR (/tmp/vim-train-slurm): the packages, and a line in /etc/hosts if this machine's name does not
# resolve to 127.*, which the daemons bind to. Other variables: VIM_SLURM_PORT (26817, and one more for each node).
set -euo pipefail
umask 022

dir=${VIM_SLURM_DIR:-/tmp/vim-train-slurm}
port=${VIM_SLURM_PORT:-26817}
cpus=16 memory=64000 gpus=4
conf=$dir/slurm.conf
say() { echo "slurm_up: $*" >&2; }
fail() { say "ERROR: $*"; exit 1; }
nodes=1
case ${1:-} in
  '') ;;
  --nodes) nodes=${2:-} ;;
  -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) fail "unknown argument $1; --help says what there is" ;;
esac
case $nodes in [1-9]) ;; *) fail '--nodes needs a number from 1 to 9' ;; esac
names=$(seq -f 'node%g' -s ' ' 1 "$nodes")
[ "$(id -u)" = 0 ] || fail 'must be root'

alive() { # DAEMON: whether its pid file names such a process
  local pid
  pid=$(cat "$dir/$1.pid" 2>/dev/null) || return 1
  [ -n "$pid" ] && grep -q "${1%-*}" "/proc/$pid/cmdline" 2>/dev/null
}
all_alive() { # DAEMON…
  local daemon
  for daemon in "$@"; do alive "$daemon" || return 1; done
}
usable() { # whether all nodes are
  local states
  states=$(SLURM_CONF=$conf timeout 5 sinfo -h -N -p main -o %T 2>/dev/null) || return 1
  [ "$(grep -c -E '^(idle|mixed|allocated|completing)$' <<< "$states")" = "$nodes" ]
}
# shellcheck disable=SC2086
daemons=$(printf 'slurmd-%s ' $names)
# shellcheck disable=SC2086
if [ -s "$conf" ] && all_alive munged slurmctld $daemons && usable; then
  say "up already: . $dir/env.sh"
  exit 0
fi

# Packages. A policy keeps apt from starting the daemons with a configuration of its own.
if ! { command -v slurmctld && command -v slurmd && command -v sbatch && command -v munged; } >/dev/null; then
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
  fi
  log=$(mktemp)
  apt-cache policy slurmctld | grep -q 'Candidate: [0-9]' || timeout 120 apt-get update -qq
  DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends \
    slurmctld slurmd slurm-client munge procps > "$log" 2>&1 || fail "apt-get install, see $log"
  rm -f "$log"
fi

host=$(hostname -s)
getent ahostsv4 "$host" | grep -q '^127\.' || echo "127.0.0.1 $host" >> /etc/hosts

mkdir -p "$dir"/{munge,state,spool,gpu,log,tmp}
if [ ! -s "$dir/munge/key" ]; then
  (umask 077; head -c 1024 /dev/urandom > "$dir/munge/key")
fi
# slurmd accepts only character devices as GPUs.
for number in $(seq 0 $((gpus - 1))); do
  [ -c "$dir/gpu/$number" ] || mknod -m 666 "$dir/gpu/$number" c 1 3 || fail 'mknod: no devices can be made here'
done

cat > "$conf" <<END
# Written by scripts/slurm_up.sh.
ClusterName=loopback
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$dir/munge/socket
# Bound to the address of the host's name, never to all interfaces.
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log

# No cgroups, no accounting.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/log/jobs.log
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
# Cores and memory are as written below, whatever the machine has.
SlurmdParameters=config_overrides

# Everything happens within a second or two.
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,sched_interval=2,sched_min_interval=200000,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
KillWait=5
MinJobAge=3600
SlurmctldTimeout=60
SlurmdTimeout=60
MessageTimeout=10
JobRequeue=1
MaxArraySize=1001
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE

# A folder for each job, as clusters have on their nodes' own disks.
Prolog=$dir/prolog.sh
TaskProlog=$dir/task_prolog.sh
Epilog=$dir/epilog.sh

GresTypes=gpu
$(for number in $(seq 1 "$nodes"); do
  echo "NodeName=node$number NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + number)) CPUs=$cpus Boards=1 SocketsPerBoard=1 CoresPerSocket=$cpus ThreadsPerCore=1 RealMemory=$memory TmpDisk=1000 Gres=gpu:h100:$gpus State=UNKNOWN"
done)
PartitionName=main Nodes=ALL Default=YES MaxTime=1-00:00:00 DefaultTime=00:10:00 DefMemPerCPU=1000 State=UP PriorityTier=5 PreemptMode=OFF
PartitionName=low Nodes=ALL MaxTime=1-00:00:00 DefaultTime=00:10:00 DefMemPerCPU=1000 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=15
PartitionName=high Nodes=ALL MaxTime=1-00:00:00 DefaultTime=00:10:00 DefMemPerCPU=1000 State=UP PriorityTier=10 PreemptMode=OFF
END
for name in $names; do
  echo "NodeName=$name Name=gpu Type=h100 File=$dir/gpu/[0-$((gpus - 1))]"
done > "$dir/gres.conf"
printf 'CgroupPlugin=autodetect\nCgroupAutomount=no\n' > "$dir/cgroup.conf"
cat > "$dir/prolog.sh" <<END
#!/bin/sh
mkdir -p -m 700 "$dir/tmp/\$SLURM_JOB_ID" && chown "\$SLURM_JOB_UID" "$dir/tmp/\$SLURM_JOB_ID"
END
printf '#!/bin/sh\necho "export SLURM_TMPDIR=%s/tmp/$SLURM_JOB_ID"\n' "$dir" > "$dir/task_prolog.sh"
cat > "$dir/epilog.sh" <<END
#!/bin/sh
[ -n "\$SLURM_JOB_ID" ] && rm -rf "$dir/tmp/\$SLURM_JOB_ID"
exit 0
END
chmod 755 "$dir"/*.sh
echo "export SLURM_CONF=$conf" > "$dir/env.sh"
export SLURM_CONF=$conf

if ! alive munged; then
  rm -f "$dir"/munge/socket*
  timeout 20 munged --socket="$dir/munge/socket" --key-file="$dir/munge/key" --pid-file="$dir/munged.pid" \
    --log-file="$dir/log/munged.log" --seed-file="$dir/munge/seed" || fail "munged: see $dir/log/munged.log"
fi
alive slurmctld || timeout 20 slurmctld -i -f "$conf" || fail "slurmctld: see $dir/log/slurmctld.log"
for name in $names; do
  mkdir -p "$dir/spool/$name"
  alive "slurmd-$name" || timeout 20 slurmd -N "$name" -f "$conf" || fail "slurmd: see $dir/log/slurmd-$name.log"
done

# The daemons report success before they can fail, so their processes are checked as well.
for _ in $(seq 1 80); do
  if usable; then
    say "up: . $dir/env.sh"
    exit 0
  fi
  for daemon in munged slurmctld $daemons; do
    [ ! -s "$dir/$daemon.pid" ] || alive "$daemon" || { tail -n 5 "$dir"/log/*.log >&2; fail "$daemon died"; }
  done
  if timeout 5 sinfo -h -N -o %T 2>/dev/null | grep -q -E 'down|drain'; then
    timeout 5 scontrol update NodeName="${names// /,}" State=RESUME 2>/dev/null || true
  fi
  sleep 0.5
done
timeout 5 sinfo -R >&2 || true
tail -n 10 "$dir"/log/*.log >&2
fail 'the nodes are not usable after 40 s'

#!/usr/bin/env bash
# half-core.sh COMMAND…: runs COMMAND in its own control group, whose processes together get at most half a core. Needs
# root and a writable hierarchy of control groups (version 1 or 2) with the controller `cpu`.
set -euo pipefail
root=/sys/fs/cgroup
if [[ -w $root/cpu ]]; then
    group=$root/cpu/cleave-half.$$
    mkdir "$group"
    echo 100000 >"$group/cpu.cfs_period_us"
    echo 50000 >"$group/cpu.cfs_quota_us"
else
    echo +cpu >"$root/cgroup.subtree_control"
    group=$root/cleave-half.$$
    mkdir "$group"
    echo "50000 100000" >"$group/cpu.max"
fi
# Processes that the command left behind are moved out, so that the group can be removed.
leave() {
    while read -r id; do echo "$id" >"$(dirname "$group")/cgroup.procs" || true; done <"$group/cgroup.procs"
    rmdir "$group"
}
trap leave EXIT
(
    echo "$BASHPID" >"$group/cgroup.procs"
    exec "$@"
)

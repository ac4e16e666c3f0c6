#!/bin/sh
# on_b.sh: host b. Runs the scripts that host a leaves in /out/b, one after the other (on_a.py), until one of them ends it.
# After host b has been killed and has booted again, it goes on with the next one.
cd /tmp || exit 1
umask 077
mkdir -p /out/b
touch "/out/b/up$TWO_HOSTS_START"
until [ -e /out/b/end ]; do
    for script in /out/b/*.sh; do
        [ -e "$script" ] || continue
        name=${script%.sh}
        [ -e "$name.begun" ] && continue
        touch "$name.begun"
        sh "$script" >"$name.text" 2>&1
        echo $? >"$name.status"
    done
    sleep 0.2
done

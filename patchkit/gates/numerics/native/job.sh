#!/bin/sh
# One job of run.sh: name, seconds, command. Each lane has two cores of its own, so that the programs, which
# start as many threads as they may use, do not wait for each other.
name=$1; limit=$2; shift 2
if [ -n "${SLOT:-}" ] && command -v taskset >/dev/null 2>&1; then
    cores=$(nproc); first=$(( SLOT * 2 % cores )); last=$(( (first + 1) % cores ))
    set -- taskset -c "$first,$last" "$@"
fi
began=$(date +%s)
# In the foreground: in a group of its own the program would outlive Ctrl-C.
timeout --foreground -k 10 "$limit" "$@" > "results/$name.out" 2> "results/$name.err"
status=$?
echo "$status $(( $(date +%s) - began ))" > "results/$name.status"
echo "run.sh: $name ended with $status" >&2
exit 0

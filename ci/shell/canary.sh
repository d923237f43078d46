#!/usr/bin/env bash
# Tries a bump to upstream's newest build and writes a report; the lock of this checkout is not changed.
# It tries every set of GPUs and opt-in patches in the lock, unless the options name one.
#
#   ci/shell/canary.sh PATCHKIT REPORT [OPTION...]
#
# Prints "code=N", the exit code of the last try: 3 a patch needs a change, 1 a gate failed, 9 a patch would be lost.
# It tries again only if that can help: after a source that did not answer (7) or a disk error (8), three times in all, CANARY_PAUSE seconds apart (default 300).
set -uo pipefail
patchkit=${1:?the command} report=${2:?the file to write}
shift 2
series=$(mktemp -d) || exit 8
trap 'rm -rf "$series"' EXIT
cp -R patches templates arch_profiles "$series/" 2>/dev/null || cp -R patches arch_profiles "$series/" || exit 8

for try in 1 2 3; do
    "$patchkit" bump --series-dir "$series" --to latest --keep-default --json "$@" >"$report"
    code=$?
    ((code == 7 || code == 8)) || break
    ((try == 3)) || sleep "${CANARY_PAUSE:-300}"
done
printf 'code=%d\n' "$code"

"""The lines of POSIX shell that patchkit runs on another machine.

Vocabulary: ``@name@`` is filled with a value that is quoted for the shell. A job's folder holds ``pid`` and
``boot`` (which start of the machine), ``stdout``, ``stderr``, and at the end ``rc``.
"""

from __future__ import annotations

import shlex

# Prints the absolute root. Results of jobs that nobody asked for in a month go.
PREPARE = """set -e
root=@root@
[ -n "$root" ] || root="${XDG_CACHE_HOME:-$HOME/.cache}/patchkit-runner"
mkdir -p "$root/jobs" "$root/placed"
for tool in setsid timeout rsync nohup; do
  command -v $tool >/dev/null || { echo "$tool: not found" >&2; exit 127; }
done
find "$root/jobs" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} +
cd "$root" && pwd -P"""

# A job that has ended, or is running, is left alone; one that died without a status begins anew. Prints the
# status and both sizes on one line, then both outputs; or "lost". Cut short at any point it can be run again.
RUN = """dir=@folder@
mkdir -p "$dir" && cd "$dir" || exit 1
boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo none)
alive() { [ -s pid ] && [ "$(cat boot 2>/dev/null)" = "$boot" ] && kill -0 "$(cat pid)" 2>/dev/null; }
if [ ! -e rc ] && ! alive; then
  rm -f pid
  end='echo $? > rc.partial; mv rc.partial rc'
  printf '%s\\n' 'echo $$ > pid' @job@' > stdout 2> stderr < /dev/null' "$end" > job.sh &&
    echo "$boot" > boot || exit 1
  nohup setsid sh job.sh > /dev/null 2>&1 < /dev/null &
  n=0; while [ ! -s pid ] && [ ! -e rc ] && [ $n -lt 300 ]; do n=$((n + 1)); sleep 0.1; done
fi
while [ ! -e rc ]; do
  alive || { sleep 0.5; [ -e rc ] || { echo lost; exit 0; }; }
  [ -e rc ] || sleep 0.2
done
echo "$(cat rc)" $(wc -c < stdout) $(wc -c < stderr)
cat stdout stderr"""

# Everything in the job's session: timeout(1) makes a process group of its own in it.
END = """cd @folder@ || exit 0
[ -e rc ] && exit 0
session=$(cat pid)
for stat in /proc/[0-9]*/stat; do
  line=$(cat "$stat" 2>/dev/null) || continue
  set -- ${line##*) }
  [ "$4" = "$session" ] && kill -TERM "$(basename "$(dirname "$stat")")" 2>/dev/null
done
exit 0"""


def fill(script: str, **values: str) -> str:
    """The script with every ``@name@`` replaced by the quoted value."""
    for name, value in values.items():
        script = script.replace(f"@{name}@", shlex.quote(value))
    return script

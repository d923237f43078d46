#!/usr/bin/env bash
# Checks one pull request: installs patchkit from TOOL and runs its gate on the repository SUBJECT.
#
#   ci/shell/gate.sh TOOL SUBJECT
#
# Required: GATE_BASE and GATE_HEAD, git revisions. Optional:
#   GATE_GPU   yes: also run the gates for a GPU, on the GPU if there is one, else emulated; emulated: always emulated
#   EXPLAIN    true: only list what would run
#   OWN_TESTS  passed: patchkit's own tests passed on the head
#   OWN_FILES  patterns of the fork's own files, one per line
#   GATE_OUT   a folder for reports
#   PATCHKIT   a patchkit command to use instead of installing TOOL
# The exit code is that of patchkit gate. GitHub Actions and GitLab call this script, too.
set -uo pipefail
tool=${1:?the folder of the patchkit that judges} subject=${2:?the folder of the repository}
tool=$(cd -- "$tool" && pwd) || exit 2 # a bare name would be one of a package registry to pip
: "${GATE_BASE:?what the head is to be merged into}" "${GATE_HEAD:?what is judged}"

if [[ -z ${PATCHKIT:-} ]]; then
    venv=$(mktemp -d) || exit 8
    trap 'rm -rf "$venv"' EXIT
    python3 -m venv "$venv" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$tool" || exit 6
    PATCHKIT=$venv/bin/patchkit
fi

args=(--base "$GATE_BASE" --head "$GATE_HEAD" --repo "$subject")
case ${GATE_GPU:-no} in yes) ;; emulated) args+=(--emulated) ;; *) args+=(--no-gpu) ;; esac
[[ ${OWN_TESTS:-} == passed ]] && args+=(--own-tests passed)
while IFS= read -r pattern; do
    [[ -n $pattern ]] && args+=(--own "$pattern")
done <<<"${OWN_FILES:-}"
if [[ -n ${GATE_OUT:-} ]]; then
    mkdir -p "$GATE_OUT" || exit 8
fi

# Listing what would run takes seconds, and shows whether anything has to be compiled.
plan=$("$PATCHKIT" gate --json --explain "${args[@]}")
code=$?
needs() { printf '%s' "$plan" | python3 -c 'import json, sys
plan = json.load(sys.stdin)
print(plan.get("own_tests", "") if sys.argv[1] == "own-tests" else " ".join(plan.get("needed", ())))' "$1"; }
own=$(needs own-tests) gates=$(needs gates)
[[ -n ${GITHUB_OUTPUT:-} ]] && printf 'own-tests=%s\n' "$own" >>"$GITHUB_OUTPUT"
if [[ ${EXPLAIN:-false} == true ]]; then
    "$PATCHKIT" gate --explain "${args[@]}"
    # It is not a failure if only patchkit's own tests are missing: the caller runs them now.
    [[ $own == needed && $code == 1 ]] && exit 0
    exit "$code"
fi

# A machine with the GPU has its own ROCm; any other installs the private SDK.
[[ ${GATE_GPU:-no} == yes ]] && gates=
case " $gates " in
*" isolation "* | *" compile "* | *" resources "* | *" launch "*) "$PATCHKIT" sdk install || exit ;;
esac
[[ -n ${GITHUB_STEP_SUMMARY:-} ]] && args+=(--summary "$GITHUB_STEP_SUMMARY")
[[ -n ${GATE_OUT:-} ]] && args+=(--reports "$GATE_OUT")
"$PATCHKIT" gate "${args[@]}"

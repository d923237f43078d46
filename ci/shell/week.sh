#!/usr/bin/env bash
# The weekly job: moves a series of yours to a newer build, checks the result, publishes it, and writes a summary.
#
#   ci/shell/week.sh TOOL SERIES
#
# TOOL is a checkout of patchkit, SERIES the git repository of the series, a folder or an address. It is cloned and
# not changed, except that WEEK_KEEP=yes pushes the branch bump/bNUMBER with the new lock to it. Also optional:
#   WEEK_OUT       the folder for everything that is written (default: week); week.md there is the issue or mail
#   WEEK_TO        the build to move to (default: latest)
#   WEEK_UPSTREAM  the git remote of llama.cpp (default: upstream's own)
#   WEEK_PUSH      a fork of llama.cpp; the published branches are pushed there
#   WEEK_GATES     emulated: all gates, those for a GPU on the emulated one (default); no-gpu: those that need no GPU;
#                  none: nothing is checked or published, and bump stops if edited functions changed
#   WEEK_WHEEL     hip: a wheel of the programs (default); cpu: for machines without a GPU; no
#   PATCHKIT       a patchkit command to use instead of installing TOOL
# The exit code is that of the bump (9: a patch was dropped, the others were moved), or of the first later step that
# failed. GitHub Actions and GitLab call this script, too.
set -uo pipefail
refuse() { echo "$1" >&2; exit 2; }
main() { # a function is read completely before it runs: the job takes hours, and TOOL may be updated meanwhile
    tool=${1:?the folder of patchkit} series=${2:?the repository of the series}
    tool=$(cd -- "$tool" && pwd) || exit 2 # a bare name would be one of a package registry to pip
    gates=${WEEK_GATES:-emulated} wheel=${WEEK_WHEEL:-hip}
    case $gates in emulated | no-gpu | none) ;; *) refuse "WEEK_GATES=$gates: emulated, no-gpu or none" ;; esac
    case $wheel in hip | cpu | no) ;; *) refuse "WEEK_WHEEL=$wheel: hip, cpu or no" ;; esac
    mkdir -p "${WEEK_OUT:=week}" && out=$(cd "$WEEK_OUT" && pwd) && work=$(mktemp -d) || exit 8
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    rm -f "$out"/{week.md,bump.json} "$out"/{verify,package}-*.json "$out"/report-*.md

    if [[ -z ${PATCHKIT:-} ]]; then
        python3 -m venv "$work/venv" &&
            "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$tool" || exit 6
        PATCHKIT=$work/venv/bin/patchkit
    fi
    git clone --quiet -- "$series" "$work/series" || exit 5
    export PATCHKIT_SERIES=$work/series
    # The bump replaces the branch of an earlier week only if no one else committed to it.
    git -C "$PATCHKIT_SERIES" fetch --quiet origin '+refs/heads/bump/*:refs/heads/bump/*' || exit 5

    text() { python3 "$tool/ci/week_text.py" "$@" --folder "$out"; }
    finish() { # finish CODE: writes the summary and exits
        text write --code "$1" --series "$PATCHKIT_SERIES" || exit 70
        printf 'written: %s\n' "$out/week.md"
        exit "$1"
    }
    code=0
    step() { # step NAME ARGUMENT...: runs patchkit with its JSON in NAME.json; keeps the first failure
        local name=$1 ended=0
        shift
        "$PATCHKIT" "$@" --json >"$out/$name.json" || ended=$?
        if ((ended && (code == 0 || code == 9))); then code=$ended; fi
        return "$ended"
    }

    bump=(bump --to "${WEEK_TO:-latest}" --drop-conflicts --commit)
    bump+=(--upstream-url "${WEEK_UPSTREAM:-https://github.com/ggml-org/llama.cpp}")
    if [[ $gates == none ]]; then bump+=(--no-verify); else "$PATCHKIT" sdk install || finish $?; fi
    step bump "${bump[@]}"
    branch=$(text branch) || finish "$code"
    git -C "$PATCHKIT_SERIES" checkout --quiet "$branch" || finish 5

    while read -r -u 3 name words; do
        # shellcheck disable=SC2086  # options, one word each
        if [[ $gates != none ]]; then
            verify=(verify $words --publish --summary "$out/report-$name.md")
            if [[ $gates == no-gpu ]]; then verify+=(--no-gpu --accept-not-run); else verify+=(--emulated); fi
            [[ -z ${WEEK_PUSH:-} ]] || verify+=(--push "$WEEK_PUSH")
            step "verify-$name" "${verify[@]}" || continue
        fi
        # shellcheck disable=SC2086  # as above
        [[ $wheel == no ]] || step "package-$name" package $words --backend "$wheel" --out "$out"
    done 3< <(text candidates)
    # A lock whose candidates failed is not pushed.
    if [[ ${WEEK_KEEP:-no} == yes ]] && ((code == 0 || code == 9)); then
        git -C "$PATCHKIT_SERIES" push --quiet --force-with-lease origin "$branch" || code=5
    fi
    finish "$code"
}
main "$@"

#!/usr/bin/env bash
# Publishes the candidate that was verified and pushes it: ARCH, UPSTREAM, REMOTE and DEPLOY_KEY (an ssh key's text).
# The key is kept in memory, only during the push. Only host keys that the machine knows are accepted.
set -euo pipefail
patchkit=${1:?the command}
: "${ARCH:?}" "${UPSTREAM:?}" "${REMOTE:?the repository that people pull from}" "${DEPLOY_KEY:?}"
eval "$(ssh-agent -s)" >/dev/null
trap 'ssh-agent -k >/dev/null' EXIT
ssh-add -q - <<<"$DEPLOY_KEY"
unset DEPLOY_KEY
"$patchkit" verify --arch "$ARCH" --upstream "$UPSTREAM" --publish --push "$REMOTE"

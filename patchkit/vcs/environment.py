"""The environment every git process gets, whoever runs patchkit and wherever.

Vocabulary: a variable *leaks* when git would read it although patchkit did not set it.
"""

from __future__ import annotations

from collections.abc import Mapping

IDENTITY_NAME = "patchkit"
IDENTITY_EMAIL = "patchkit@localhost"

# Which certificates to trust is a fact of the machine (company proxies), and cannot change what is
# accepted: the tree hash decides that.
_KEPT = frozenset({"GIT_SSL_CAINFO", "GIT_SSL_CAPATH"})

# In the order of git's manual. A null device switches a file off; an empty helper clears the list.
_CONFIG = {
    "advice.detachedHead": "false",
    "commit.gpgSign": "false",
    "core.askPass": "",
    "core.attributesFile": "/dev/null",
    "core.autocrlf": "false",
    "core.compression": "1",  # the cache is written once and read locally: time matters, size does not
    "core.eol": "lf",
    "core.excludesFile": "/dev/null",
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.safecrlf": "false",
    "core.untrackedCache": "false",
    "credential.helper": "",
    "gc.auto": "0",
    "http.lowSpeedLimit": "1000",  # bytes per second, over lowSpeedTime seconds
    "http.lowSpeedTime": "30",
    "init.defaultBranch": "main",
    "init.defaultRefFormat": "files",
    "maintenance.auto": "false",
    "protocol.version": "2",
}

_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file",
    "GIT_ASKPASS": "",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_AUTHOR_EMAIL": IDENTITY_EMAIL,
    "GIT_AUTHOR_NAME": IDENTITY_NAME,
    "GIT_COMMITTER_EMAIL": IDENTITY_EMAIL,
    "GIT_COMMITTER_NAME": IDENTITY_NAME,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_GRAFT_FILE": "/dev/null/none",  # a file that is there, even an empty one, makes git warn
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    # A shared connection would leave a process behind that outlives the command.
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oControlPath=none",
    "GIT_TERMINAL_PROMPT": "0",
    "LANGUAGE": "C",
    "LC_ALL": "C",
    "TZ": "UTC",
}


def fixed_environment() -> dict[str, str]:
    """The variables to set. Configuration travels in them too, so that child processes see it."""
    environment = dict(_VARIABLES)
    environment["GIT_CONFIG_COUNT"] = str(len(_CONFIG))
    for number, (key, value) in enumerate(_CONFIG.items()):
        environment[f"GIT_CONFIG_KEY_{number}"] = key
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    return environment


def leaking_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names to unset: all of git's own that :func:`fixed_environment` does not overwrite."""
    ours = fixed_environment()
    return tuple(
        sorted(name for name in environ if name.startswith("GIT_") and name not in ours and name not in _KEPT)
    )

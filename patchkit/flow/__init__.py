"""The verbs without a terminal: what each command does, from a request to a result that it can show.

The modules of a verb begin with its name (``bump_*``, ``bench_*``, ``tune_*``, ``publish_*``); the others
serve several.
"""

"""``bench run``, and what it shares with gate ``bench`` and ``pick``: builds, tests, promises, visits."""

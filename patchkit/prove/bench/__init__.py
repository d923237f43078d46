"""``bench run``, and what the gate ``bench`` and ``pick`` share with it: builds, tests, promises, visits."""

"""What became of a patch on another upstream: one of eight classes, with the proof of it.

:mod:`patchkit.classify.model` has the words, each other module one question, and
:mod:`patchkit.flow.classifying` asks them in order.
"""

from __future__ import annotations

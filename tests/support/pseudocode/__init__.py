"""A second source for what instructions do: AMD's published pseudocode, read and evaluated.

AMD prints, beside each instruction of its instruction set guides, what it computes. The package tinygrad
carries those texts as data (``published``). ``syntax`` reads their language, ``evaluate`` runs it on the
values of ``floats``, ``wave`` runs a few instructions of a wave with it (``matrices`` those that AMD gives
no text for), ``corrections`` holds where a text is wrong or says too little. ``cases`` makes programs of
random operands with what they must leave, ``comparison`` judges what an emulator left.
"""

from __future__ import annotations

"""Bump: from the recorded pin to another one, all patches or nothing."""

"""Bump: move the lock from its pin to another one, with all patches or not at all."""

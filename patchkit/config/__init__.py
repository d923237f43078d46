"""What the files say: profiles, patch manifests, the lock; TOML with places; JSON schemas.

The only package that imports pydantic. See the modules for their vocabularies.
"""

from __future__ import annotations

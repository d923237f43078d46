"""The terminal side: options, messages, exit codes. The only package that imports click and rich."""

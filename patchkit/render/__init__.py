"""Text from templates: one sandboxed environment, an explicit context, errors with file and line."""

"""Where programs that need the GPU run: on this machine, or on another one through ssh."""

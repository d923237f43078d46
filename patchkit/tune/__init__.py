"""Parameters of kernels: legal settings, what the compiler makes of each, the order, the profile's rows."""

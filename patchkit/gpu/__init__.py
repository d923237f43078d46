"""GPUs: emulated, modelled and real. It knows no patch."""

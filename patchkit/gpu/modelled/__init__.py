"""How long a GPU would take, modelled on what the emulated GPU executed; never measured."""

"""Checks of the host that llama.cpp runs on: settings that cost speed, and faults that stop it.

``read.py`` reads the facts of a machine below one root folder, ``check.py`` judges them. Thresholds, costs
and their sources are in ``facts.toml``. Nothing is changed, no program is started, and no root rights are
needed.
"""

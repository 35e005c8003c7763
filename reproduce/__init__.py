"""Regenerates the figures, tables and theorem checks of the paper: `python -m reproduce --help`.

Compute writes records, drawing reads them. An artifact is one configuration (`configs/`), one experiment
(`experiments/`, the only place with JAX code), one picture (`figures/` or `tables/`), one line in `registry.py`, one
entry in `artifacts.toml`, one seed in `seeds.py`, its sizes in `tiers.py` and its claims in `claims/`.
"""

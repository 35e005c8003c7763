"""Regenerates the figures, tables and theorem checks of the paper: `python -m reproduce --help`.

An artifact is one file in `artifacts/`, with everything about it, and an experiment in `experiments/`, the only place
with JAX code. Computing writes records; drawing and judging read the CSVs that are made of them.
"""

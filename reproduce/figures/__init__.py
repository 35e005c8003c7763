"""Figures, drawn from records only: no JAX, no epinet_eqx."""

"""The reproducibility paper: its numbers from the accepted CSVs, its pages by Typst. No JAX, no epinet_eqx."""

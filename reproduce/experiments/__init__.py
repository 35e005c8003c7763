"""The JAX code: each experiment maps a unit of its configuration and a key to rows of results."""

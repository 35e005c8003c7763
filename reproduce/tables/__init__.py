"""Tables, made from records only: no JAX, no epinet_eqx."""

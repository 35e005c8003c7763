"""Feature vectors of sequences: hidden states of a language model, pooled over the tokens that are not padding."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from .._checks import check_shape


def _as_weights(hidden: Float[Array, "tokens width"], mask: Shaped[Array, " tokens"]) -> Float[Array, " tokens"]:
    """Return one for each token and zero for padding, in the type of the hidden states."""
    if hidden.ndim != 2:
        raise ValueError(f"`hidden` must have shape (tokens, width), without a batch axis; got {hidden.shape}.")
    check_shape("mask", mask, hidden.shape[:1])
    return (mask != 0).astype(hidden.dtype)


def masked_mean(hidden: Float[Array, "tokens width"], mask: Shaped[Array, " tokens"]) -> Float[Array, " width"]:
    """Return the mean of the hidden states over the tokens whose mask is not zero; zeros if there are none.

    Args:
        hidden: hidden states of one sequence.
        mask: zero for padding, as in the `attention_mask` of Hugging Face.
    """
    weights = _as_weights(hidden, mask)
    return weights @ hidden / jnp.maximum(jnp.sum(weights), 1)


def last_token(hidden: Float[Array, "tokens width"], mask: Shaped[Array, " tokens"]) -> Float[Array, " width"]:
    """Return the hidden state of the last token whose mask is not zero, on whichever side the padding is.

    Args:
        hidden: hidden states of one sequence.
        mask: zero for padding, as in the `attention_mask` of Hugging Face.
    """
    weights = _as_weights(hidden, mask)
    # Zeros if all is padding.
    positions = jnp.arange(weights.size)
    last = jnp.max(jnp.where(weights > 0, positions, -1))
    # A product, since the index of an empty sequence would count from the end.
    return (positions == last).astype(hidden.dtype) @ hidden

"""Epinets (Section 4)."""

from ._attach import attach as attach
from ._epinet import Epinet as Epinet
from ._epinet import EpinetEmbedding as EpinetEmbedding
from ._learnable import MLPEpinet as MLPEpinet
from ._mirrored import Mirrored as Mirrored
from ._prior import NetworkEnsemble as NetworkEnsemble
from ._prior import PriorNetwork as PriorNetwork
from ._prior import conv_prior as conv_prior
from ._prior import matched_prior as matched_prior
from ._prior import mlp_prior as mlp_prior
from ._term import AbstractTerm as AbstractTerm

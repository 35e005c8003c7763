"""Epinets: a base network, a learnable epinet and fixed priors (Section 4)."""

from ._attach import attach as attach
from ._epinet import Epinet as Epinet
from ._terms import MLPEpinet as MLPEpinet
from ._terms import NetworkEnsemble as NetworkEnsemble
from ._terms import Reads as Reads
from ._terms import TermInput as TermInput
from ._terms import conv_prior as conv_prior
from ._terms import matched_prior as matched_prior
from ._terms import mlp_prior as mlp_prior

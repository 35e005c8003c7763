"""Bayesian neural networks as ENNs (Section 3.2)."""

from ._as_enn import as_enn as as_enn
from ._bnn import AbstractBNN as AbstractBNN
from ._bnn import Transport as Transport
from ._dropout import Dropout as Dropout
from ._dropout import DropoutChain as DropoutChain
from ._dropout import MCDropout as MCDropout
from ._dropout import channel_dropout as channel_dropout
from ._dropout import dropout_mlp as dropout_mlp
from ._ensemble import Deterministic as Deterministic
from ._ensemble import Ensemble as Ensemble
from ._ensemble import from_blackjax as from_blackjax
from ._ensemble import from_samples as from_samples
from ._gaussian import SWAG as SWAG
from ._gaussian import BayesByBackprop as BayesByBackprop
from ._gaussian import SWAGState as SWAGState
from ._hypermodel import DiagonalHypermodel as DiagonalHypermodel
from ._hypermodel import IndexedMLP as IndexedMLP
from ._hypermodel import LinearHypermodel as LinearHypermodel
from ._laplace import LastLayerLaplace as LastLayerLaplace
from ._laplace import last_layer_laplace as last_layer_laplace
from ._parameters import split_parameters as split_parameters
from ._sgmcmc import Langevin as Langevin
from ._sgmcmc import run_chain as run_chain
from ._sgmcmc import sghmc as sghmc
from ._sgmcmc import sgld as sgld
from ._sgmcmc import split_r_hat as split_r_hat

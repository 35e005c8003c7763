"""Likelihoods: how an output becomes a distribution of the target; losses, metrics and posteriors take one."""

from .._likelihoods import AbstractFisher as AbstractFisher
from .._likelihoods import AbstractLikelihood as AbstractLikelihood
from .._likelihoods import AbstractNumeric as AbstractNumeric
from .._likelihoods import AbstractOutcomes as AbstractOutcomes
from .._likelihoods import Bernoulli as Bernoulli
from .._likelihoods import Categorical as Categorical
from .._likelihoods import Gaussian as Gaussian
from .._likelihoods import LearnedGaussian as LearnedGaussian
from .._likelihoods import PerPosition as PerPosition
from .._likelihoods import Poisson as Poisson

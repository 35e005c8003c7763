"""Reference distributions of the epistemic index (Section 3)."""

from ._abstract import AbstractIndex as AbstractIndex
from ._abstract import unit_vector as unit_vector
from ._dirichlet import DirichletIndex as DirichletIndex
from ._discrete import ParticleIndex as ParticleIndex
from ._discrete import TupleIndex as TupleIndex
from ._gaussian import GaussianIndex as GaussianIndex
from ._gaussian import GaussianWithUnitIndex as GaussianWithUnitIndex
from ._gaussian import ScaledGaussianIndex as ScaledGaussianIndex
from ._key import KeyIndex as KeyIndex

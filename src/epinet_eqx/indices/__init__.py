"""Reference distributions of the epistemic index (Section 3)."""

from ._abstract import AbstractIndex as AbstractIndex
from ._abstract import KeyIndex as KeyIndex
from ._abstract import ParticleIndex as ParticleIndex
from ._abstract import TupleIndex as TupleIndex
from ._vectors import AbstractVectorIndex as AbstractVectorIndex
from ._vectors import DirichletIndex as DirichletIndex
from ._vectors import GaussianIndex as GaussianIndex
from ._vectors import GaussianWithUnitIndex as GaussianWithUnitIndex
from ._vectors import ScaledGaussianIndex as ScaledGaussianIndex

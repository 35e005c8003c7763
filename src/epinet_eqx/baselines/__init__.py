"""The uncertainty baselines of image classification (Section 6 and Appendix G), each as an ENN."""

from ._heteroscedastic import Heteroscedastic as Heteroscedastic
from ._mimo import MIMO as MIMO
from ._mimo import MIMOLoss as MIMOLoss
from ._mimo import mimo_batch as mimo_batch
from ._sngp import SNGP as SNGP
from ._sngp import RandomFeatures as RandomFeatures
from ._sngp import with_posterior as with_posterior
from ._spectral import SpectrallyBounded as SpectrallyBounded
from ._spectral import SpectrallyBoundedStateful as SpectrallyBoundedStateful
from ._spectral import spectral_bound as spectral_bound
from ._spectral import spectral_norm as spectral_norm

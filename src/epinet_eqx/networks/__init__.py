"""Conventional networks, the base of an ENN (Section 4.1)."""

from .._init import Initializer as Initializer
from .._init import equinox_uniform as equinox_uniform
from .._init import glorot_uniform as glorot_uniform
from .._init import truncated_normal as truncated_normal
from .._init import truncated_normal_with_bias as truncated_normal_with_bias
from ._abstract import AbstractNetwork as AbstractNetwork
from ._abstract import FunctionNetwork as FunctionNetwork
from ._conv import Conv as Conv
from ._conv import ConvNet as ConvNet
from ._mlp import MLP as MLP
from ._mlp import Linear as Linear

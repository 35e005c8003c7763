"""Four formats of published weights, read without the libraries that wrote them, as names and arrays.

Every reader calls the tensors of a layer `name/kernel`, `name/bias`, `name/gamma`, `name/beta`, `name/mean` and
`name/variance`; kernels of convolutions are `(height, width, in, out)`, those of linear layers `(in, out)`.
"""

import math
import pathlib
from typing import Any

import numpy as np

from .._files import read_json
from .._pickled import read_pickled_arrays
from ._torch_files import read_torch_file

Tensors = dict[str, np.ndarray]

_KERAS = {
    "kernel": "kernel",
    "depthwise_kernel": "kernel",
    "bias": "bias",
    "gamma": "gamma",
    "beta": "beta",
    "moving_mean": "mean",
    "moving_variance": "variance",
}


def _from_keras(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    """Return name and array of a tensor of Keras; its layer is the last part but one."""
    *layer, kind = name.removesuffix(":0").split("/")
    if kind not in _KERAS:
        raise ValueError(f"{name} must be one of {', '.join(_KERAS)}.")
    if kind == "depthwise_kernel":
        array = np.transpose(array, (0, 1, 3, 2))
    return f"{layer[-1]}/{_KERAS[kind]}", array


def read_tensorflowjs(path: pathlib.Path) -> Tensors:
    """Return the tensors of a layers model of TensorFlow.js, `model.json`, whose shards are beside it."""
    found = {}
    for group in read_json(path)["weightsManifest"]:
        content = b"".join(path.with_name(pathlib.Path(shard).name).read_bytes() for shard in group["paths"])
        at = 0
        for entry in group["weights"]:
            if entry["dtype"] != "float32" or "quantization" in entry:
                raise ValueError(f"{entry['name']} must be plain float32; got {entry['dtype']}.")
            array = np.frombuffer(content, "<f4", math.prod(entry["shape"]), at).reshape(entry["shape"])
            at += array.nbytes
            name, array = _from_keras(entry["name"], array)
            found[name] = array
        if at != len(content):
            raise ValueError(f"The shards of {path.name} must hold {at} bytes; got {len(content)}.")
    return found


def read_hdf5(path: pathlib.Path) -> Tensors:
    """Return the tensors of an HDF5 file of Keras."""
    try:
        import h5py  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError("HDF5 files need h5py: install `epinet_eqx[weights]`.") from None
    found: list[tuple[str, np.ndarray]] = []
    with h5py.File(path, "r") as file:

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                found.append((name, np.asarray(item)))

        file.visititems(visit)
    return dict(_from_keras(*pair) for pair in found)


def read_torch(path: pathlib.Path) -> Tensors:
    """Return the tensors of a PyTorch file with a state dict."""
    found = {}
    raw = read_torch_file(path)
    for name, array in raw.items():
        layer, kind = name.rsplit(".", 1)
        norm = f"{layer}.running_mean" in raw
        match kind, array.ndim:
            case "weight", 4:
                found[f"{layer}/kernel"] = np.transpose(array, (2, 3, 1, 0))
            case "weight", 2:
                found[f"{layer}/kernel"] = array.T
            case "weight", 1:
                found[f"{layer}/gamma"] = array
            case "bias", 1:
                found[f"{layer}/{'beta' if norm else 'bias'}"] = array
            case "running_mean", 1:
                found[f"{layer}/mean"] = array
            case "running_var", 1:
                found[f"{layer}/variance"] = array
            case "num_batches_tracked", 0:
                pass
            case _:
                raise ValueError(f"{name} must be a weight, a bias or a running value; got shape {array.shape}.")
    return found


def read_numpy_pairs(path: pathlib.Path) -> Tensors:
    """Return the tensors of a pickled dictionary from layers to pairs of kernel and bias."""
    found = {}
    for name, pair in read_pickled_arrays(path).items():
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, np.ndarray) for part in pair):
            raise ValueError(f"{name} of {path.name} must be a pair of arrays; it is not.")
        found |= {f"{name}/kernel": pair[0], f"{name}/bias": pair[1].reshape(-1)}
    return found

"""Public weights: a forward pass in numpy by the file's own names, PyTorch itself, and real checkpoints."""

import hashlib
import json
import pathlib
import subprocess
import sys
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from safetensors.numpy import save_file

from epinet_eqx.networks import (
    BatchNorm,
    Linear,
    PostActivationBlock,
    PreActivationBlock,
    ResNet,
    Stem,
    cifar_resnet,
    resnet_v1,
    resnet_v2,
    truncated_normal,
    with_statistics,
)
from epinet_eqx.weights import download, load_safetensors_weights

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent
DATA = ROOT.parent / "shared" / "data"


def tiny(make_block, *, large, **options):
    """Return a network of two groups of two blocks with 8 and 16 channels, and its state."""
    pre = make_block is PreActivationBlock
    shared = {"padding": "symmetric", "initializer": truncated_normal}
    sizes = ((8, 8, 1), (8, 8, 1), (8, 16, 2), (16, 16, 1))

    def make():
        *keys, stem_key, linear_key = jr.split(jr.key(0), 6)
        blocks = [make_block(*size, **options, **shared, key=key) for size, key in zip(sizes, keys, strict=True)]
        return ResNet(
            stem=Stem(3, 8, large=large, norm=None if pre else BatchNorm, **shared, key=stem_key),
            groups=((blocks[0], blocks[1]), (blocks[2], blocks[3])),
            norm=BatchNorm(16) if pre else None,
            linear=Linear(16, 5, key=linear_key),
            dropout=None,
        )

    return eqx.nn.make_with_state(make)()


NETWORKS = {
    "cifar": lambda: tiny(PostActivationBlock, large=False, pad_shortcut=True),
    "torchvision": lambda: tiny(PostActivationBlock, large=True, bottleneck=True),
    "timm": lambda: tiny(PreActivationBlock, large=True, bottleneck=True),
}


def layer_shapes(naming):
    """Return the shapes of the weights of the tiny networks, by the names of PyTorch's layers."""
    found = {}
    for group, number, width, channels in ((0, 0, 8, 8), (0, 1, 8, 8), (1, 0, 8, 16), (1, 1, 16, 16)):
        inner = channels // 4
        if naming == "cifar":
            prefix = f"layer{group + 1}.{number}"
            found |= {f"{prefix}.conv1": (channels, width, 3, 3), f"{prefix}.bn1": (channels,)}
            found |= {f"{prefix}.conv2": (channels, channels, 3, 3), f"{prefix}.bn2": (channels,)}
        elif naming == "torchvision":
            prefix = f"layer{group + 1}.{number}"
            found |= {f"{prefix}.conv1": (inner, width, 1, 1), f"{prefix}.bn1": (inner,)}
            found |= {f"{prefix}.conv2": (inner, inner, 3, 3), f"{prefix}.bn2": (inner,)}
            found |= {f"{prefix}.conv3": (channels, inner, 1, 1), f"{prefix}.bn3": (channels,)}
            if width != channels:
                found |= {f"{prefix}.downsample.0": (channels, width, 1, 1), f"{prefix}.downsample.1": (channels,)}
        else:
            prefix = f"stages.{group}.blocks.{number}"
            found |= {f"{prefix}.norm1": (width,), f"{prefix}.conv1": (inner, width, 1, 1)}
            found |= {f"{prefix}.norm2": (inner,), f"{prefix}.conv2": (inner, inner, 3, 3)}
            found |= {f"{prefix}.norm3": (inner,), f"{prefix}.conv3": (channels, inner, 1, 1)}
            if width != channels:
                found |= {f"{prefix}.downsample.conv": (channels, width, 1, 1)}
    if naming == "timm":
        return found | {"stem.conv": (8, 3, 7, 7), "norm": (16,), "head.fc": (5, 16, 1, 1)}
    kernel, linear = (3, "linear") if naming == "cifar" else (7, "fc")
    return found | {"conv1": (8, 3, kernel, kernel), "bn1": (8,), linear: (5, 16)}


def state_dict(naming, *, counts=True):
    """Return random tensors by the names of PyTorch's parameters and buffers."""
    rng = np.random.default_rng(0)
    tensors = {}
    for name, shape in layer_shapes(naming).items():
        if len(shape) > 1:
            tensors[f"{name}.weight"] = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        else:
            tensors[f"{name}.weight"], tensors[f"{name}.running_var"] = rng.uniform(0.5, 2, size=(2, *shape))
            tensors[f"{name}.bias"], tensors[f"{name}.running_mean"] = rng.normal(size=(2, *shape))
            if counts:
                tensors[f"{name}.num_batches_tracked"] = np.array(17, dtype=np.int64)
        if name in ("linear", "fc", "head.fc"):
            tensors[f"{name}.bias"] = rng.normal(size=shape[:1])
    return {name: value.astype(np.float32) if value.ndim else value for name, value in tensors.items()}


class Reference:
    """A ResNet in numpy, on a batch with channels first."""

    def __init__(self, tensors):
        self.tensors = tensors

    def windows(self, x, kernel, stride, fill=0.0):
        pad = kernel // 2
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
        return np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]

    def conv(self, x, name, stride=1):
        weight = self.tensors[f"{name}.weight"]
        return np.einsum("nchwij,ocij->nohw", self.windows(x, weight.shape[-1], stride), weight)

    def norm(self, x, name, relu=True):
        scale, offset, mean, var = (
            self.tensors[f"{name}.{field}"][:, None, None]
            for field in ("weight", "bias", "running_mean", "running_var")
        )
        x = (x - mean) / np.sqrt(var + 1e-5) * scale + offset
        return np.maximum(x, 0) if relu else x

    def pool(self, x):
        return self.windows(x, 3, 2, fill=-np.inf).max((-1, -2))

    def linear(self, x, name):
        weight = self.tensors[f"{name}.weight"]
        return x.mean((2, 3)) @ weight.reshape(weight.shape[:2]).T + self.tensors[f"{name}.bias"]

    def cifar(self, x):
        x = self.norm(self.conv(x, "conv1"), "bn1")
        for group, number in ((1, 0), (1, 1), (2, 0), (2, 1)):
            prefix, stride = f"layer{group}.{number}", 2 if (group, number) == (2, 0) else 1
            hidden = self.norm(self.conv(x, f"{prefix}.conv1", stride), f"{prefix}.bn1")
            hidden = self.norm(self.conv(hidden, f"{prefix}.conv2"), f"{prefix}.bn2", relu=False)
            if stride == 2:
                x = np.pad(x[:, :, ::2, ::2], ((0, 0), (4, 4), (0, 0), (0, 0)))
            x = np.maximum(hidden + x, 0)
        return self.linear(x, "linear")

    def torchvision(self, x):
        x = self.pool(self.norm(self.conv(x, "conv1", 2), "bn1"))
        for group, number in ((1, 0), (1, 1), (2, 0), (2, 1)):
            prefix, stride = f"layer{group}.{number}", 2 if (group, number) == (2, 0) else 1
            hidden = self.norm(self.conv(x, f"{prefix}.conv1"), f"{prefix}.bn1")
            hidden = self.norm(self.conv(hidden, f"{prefix}.conv2", stride), f"{prefix}.bn2")
            hidden = self.norm(self.conv(hidden, f"{prefix}.conv3"), f"{prefix}.bn3", relu=False)
            if stride == 2:
                x = self.norm(self.conv(x, f"{prefix}.downsample.0", 2), f"{prefix}.downsample.1", relu=False)
            x = np.maximum(hidden + x, 0)
        return self.linear(x, "fc")

    def timm(self, x):
        x = self.pool(self.conv(x, "stem.conv", 2))
        for group, number in ((0, 0), (0, 1), (1, 0), (1, 1)):
            prefix, stride = f"stages.{group}.blocks.{number}", 2 if (group, number) == (1, 0) else 1
            first = self.norm(x, f"{prefix}.norm1")
            hidden = self.norm(self.conv(first, f"{prefix}.conv1"), f"{prefix}.norm2")
            hidden = self.norm(self.conv(hidden, f"{prefix}.conv2", stride), f"{prefix}.norm3")
            x = self.conv(hidden, f"{prefix}.conv3") + (
                self.conv(first, f"{prefix}.downsample.conv", 2) if stride == 2 else x
            )
        return self.linear(self.norm(x, "norm"), "head.fc")


@eqx.filter_jit
def outputs(network, state, images):
    """Return the logits of a batch by the running values."""
    return jax.vmap(with_statistics(network, state))(images)


@pytest.mark.parametrize("naming", NETWORKS)
def test_a_state_dict_gives_the_outputs_that_its_names_promise(naming, tmp_path):
    tensors = state_dict(naming)
    save_file(tensors, tmp_path / "weights.safetensors")
    network, state = NETWORKS[naming]()
    loaded, after = load_safetensors_weights(network, state, tmp_path / "weights.safetensors", naming=naming)
    images = np.random.default_rng(1).normal(size=(3, 3, 24, 24)).astype(np.float32)
    expected = getattr(Reference(tensors), naming)(images)
    assert np.allclose(outputs(loaded, after, images), expected, atol=1e-4)
    first = loaded.groups[0][0].norms[0]
    assert int(after.get(first.statistics).count) == 17
    # What was given is as it was, and may be used again.
    assert int(state.get(first.statistics).count) == 0


def test_a_wrapped_network_without_counts_is_a_trained_one(tmp_path):
    tensors = {f"module.{name}": value for name, value in state_dict("cifar", counts=False).items()}
    save_file(tensors, tmp_path / "weights.safetensors")
    network, state = eqx.filter_eval_shape(NETWORKS["cifar"])
    network, state = load_safetensors_weights(network, state, tmp_path / "weights.safetensors", naming="cifar")
    norm = network.groups[0][0].norms[0]
    before = state.get(norm.statistics)
    x = jnp.full((2, 4, 8), 3.0)
    _, state = jax.vmap(norm, in_axes=(0, None), out_axes=(0, None), axis_name="batch")(x, state)
    # One batch moves trained statistics by a tenth of the way.
    assert jnp.allclose(state.get(norm.statistics).mean, 0.9 * before.mean + 0.1 * 3.0, rtol=1e-5)


def changed(**changes):
    """Return a file's tensors with some replaced, or without those that are None; two underscores stand for a dot."""
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in (state_dict("cifar") | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (changed(bn1__bias=None), "weights.safetensors' differs: missing bn1.bias"),
        (changed(bn9__bias=np.zeros(3, np.float32)), "extra bn9.bias"),
        (changed(linear__bias=np.zeros(3, np.float32)), r"linear.bias has shape \(3,\) instead of \(5,\)"),
        (changed(bn1__bias=np.full(8, np.nan, np.float32)), "bn1.bias is not finite"),
        # Inference would take the square root.
        (changed(bn1__running_var=np.full(8, -1.0, np.float32)), "bn1.running_var is negative"),
        (changed(bn1__bias=np.full(8, 3, np.int32)), "bn1.bias is int32, not floating-point numbers"),
        (changed(bn1__num_batches_tracked=np.array([3, 4, 5])), "bn1.num_batches_tracked is no count"),
        (changed(bn1__num_batches_tracked=np.array(-3)), "bn1.num_batches_tracked is no count"),
        (changed(bn9__num_batches_tracked=np.array(3)), "extra bn9.num_batches_tracked"),
        (state_dict("torchvision"), r"missing linear.bias.* and \d+ more"),
    ],
)
def test_a_file_for_another_network_is_refused(tensors, message, tmp_path):
    save_file(tensors, tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match=message):
        load_safetensors_weights(*NETWORKS["cifar"](), tmp_path / "weights.safetensors", naming="cifar")


def test_bad_arguments_are_sentences(tmp_path, as_user):
    network, state = eqx.filter_eval_shape(NETWORKS["timm"])
    (tmp_path / "weights.pth").write_bytes(b"\x80\x02}q\x00.")
    save_file(state_dict("timm"), tmp_path / "weights.safetensors")
    for path, naming, message in (
        ("weights.pth", "timm", "`path` must be a whole safetensors file"),
        ("weights.safetensors", "torch", '`naming` must be "torchvision", "timm" or "cifar"; got \'torch\''),
        ("weights.safetensors", "torchvision", '`naming` must be "timm" for a pre-activation ResNet'),
    ):
        with pytest.raises(ValueError, match=message):
            load_safetensors_weights(network, state, tmp_path / path, naming=naming)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with one file; returns its checksum, and records how it was asked."""
    content = b"weights"
    (tmp_path / "model.safetensors").write_bytes(content)
    asked = []

    def hf_hub_download(repo_id, filename, *, revision, cache_dir):
        asked.append((repo_id, filename, revision, cache_dir))
        return str(tmp_path / filename)

    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(hf_hub_download=hf_hub_download))
    return hashlib.sha256(content).hexdigest(), asked


def test_download_is_by_revision_and_checked(hub):
    sha256, asked = hub
    path = download("timm/resnet", "model.safetensors", revision="abc", sha256=sha256.upper())
    assert path.read_bytes() == b"weights" and asked == [("timm/resnet", "model.safetensors", "abc", None)]
    with pytest.raises(ValueError, match=f"`sha256` must be that of 'model.safetensors'.*{sha256}; got {'0' * 64}"):
        download("timm/resnet", "model.safetensors", revision="abc", sha256="0" * 64)
    with pytest.raises(ValueError, match="`filename` must end in \".safetensors\"; got 'model.bin'"):
        download("timm/resnet", "model.bin", revision="abc", sha256=sha256)
    with pytest.raises(ValueError, match="`sha256` must have 64 hexadecimal digits; got 'abc'"):
        download("timm/resnet", "model.safetensors", revision="abc", sha256="abc")
    assert len(asked) == 2


def test_download_says_which_extra_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"install `epinet_eqx\[hub\]`"):
        download("timm/resnet", "model.safetensors", revision="abc", sha256="0" * 64)


def torch_cifar(torch, blocks):
    """Return the usual PyTorch CIFAR ResNet."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width, channels, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(width, channels, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(channels)
            self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(channels)
            self.stride, self.zeros = stride, channels - width

        def forward(self, x):
            hidden = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
            x = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0) + 2 * (self.zeros // 2,))
            return (hidden + x).relu()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
            for group, (width, channels) in enumerate(((16, 16), (16, 32), (32, 64)), start=1):
                first = Block(width, channels, 1 if group == 1 else 2)
                rest = [Block(channels, channels, 1) for _ in range(blocks - 1)]
                setattr(self, f"layer{group}", nn.Sequential(first, *rest))
            self.linear = nn.Linear(64, 10)

        def forward(self, x):
            x = self.layer3(self.layer2(self.layer1(self.bn1(self.conv1(x)).relu())))
            return self.linear(x.mean((2, 3)))

    return Net()


@pytest.mark.parametrize("naming", ["cifar", "torchvision", "timm"])
def test_pytorch_has_the_same_logits(naming, tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    if naming == "cifar":
        theirs, (network, state) = torch_cifar(torch, 3), eqx.filter_eval_shape(lambda: cifar_resnet(20, key=jr.key(0)))
    elif naming == "torchvision":
        theirs = pytest.importorskip("torchvision").models.resnet50()
        network, state = eqx.filter_eval_shape(lambda: resnet_v1(50, key=jr.key(0)))
    else:
        theirs = pytest.importorskip("timm").create_model("resnetv2_50")
        network, state = eqx.filter_eval_shape(lambda: resnet_v2(50, padding="symmetric", key=jr.key(0)))
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        # A few steps in training mode give running values that are not the initial ones.
        for _ in range(3):
            theirs.train()(torch.randn(8, 3, 64, 64))
        expected = theirs.eval()(images).numpy()
    wrapped = {"state_dict": {f"module.{name}": value for name, value in theirs.state_dict().items()}, "epoch": 3}
    torch.save(wrapped, tmp_path / "weights.pth")
    convert = [sys.executable, "-m", "epinet_eqx.weights", "convert"]
    subprocess.run([*convert, tmp_path / "weights.pth", tmp_path / "weights.safetensors"], check=True)
    network, state = load_safetensors_weights(network, state, tmp_path / "weights.safetensors", naming=naming)
    assert np.abs(expected).max() > 0.1
    assert np.allclose(outputs(network, state, images.numpy()), expected, atol=1e-4)


@pytest.mark.parametrize(("name", "depth", "expected"), [("resnet20_00", 20, 0.91), ("resnet56_00", 56, 0.94)])
def test_real_checkpoints_have_their_accuracy(name, depth, expected):
    """On the first 500 test images; on all 10,000 they have 0.9173 and 0.9339."""
    if not DATA.is_dir():
        pytest.skip("needs the real checkpoints and images")
    image = pytest.importorskip("PIL.Image")
    pixels = np.asarray(image.open(DATA / "cifar10" / "test_00.webp").convert("RGB"), np.float32) / 255
    pixels = pixels.reshape(25, 32, 40, 32, 3).transpose(0, 2, 4, 1, 3).reshape(1000, 3, 32, 32)[:500]
    labels = np.load(DATA / "cifar10" / "labels.npz")["test"][:500]
    folder = DATA / "cifar10_resnets"
    entries = {entry["file"]: entry for entry in json.loads((folder / "index.json").read_text())}
    normalize = entries[f"{name}.safetensors"]["normalize"]
    mean, std = (np.array(normalize[field], np.float32)[:, None, None] for field in ("mean", "std"))
    network, state = eqx.filter_eval_shape(lambda: cifar_resnet(depth, key=jr.key(0)))
    network, state = load_safetensors_weights(network, state, folder / f"{name}.safetensors", naming="cifar")
    found = [outputs(network, state, batch) for batch in np.split((pixels - mean) / std, 10)]
    accuracy = np.mean(np.concatenate(found).argmax(1) == labels)
    assert abs(accuracy - expected) <= 0.002

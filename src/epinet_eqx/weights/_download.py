"""Verified files from the Hugging Face hub."""

import hashlib
import os
import pathlib
import re


def download(
    repo: str, filename: str, *, revision: str, sha256: str, folder: str | os.PathLike[str] | None = None
) -> pathlib.Path:
    """Return a safetensors file of the Hugging Face hub: downloaded if it is not cached, and verified every time.

    Args:
        repo: name of the repository, such as "timm/resnet50.tv_in1k".
        filename: path of the file in it, which must end in ".safetensors": nothing else is loaded.
        revision: commit, tag or branch.
        sha256: the SHA-256 checksum of the file, in hexadecimal.
        folder: the folder of downloads; by default the hub's cache.
    """
    if not filename.endswith(".safetensors"):
        raise ValueError(f'`filename` must end in ".safetensors"; got {filename!r}.')
    if not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"`sha256` must have 64 hexadecimal digits; got {sha256!r}.")
    try:
        from huggingface_hub import hf_hub_download  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError("`download` needs huggingface_hub: install `epinet_eqx[hub]`.") from None
    path = pathlib.Path(
        hf_hub_download(repo, filename, revision=revision, cache_dir=None if folder is None else os.fspath(folder))
    )
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256.lower():
        raise ValueError(f"`sha256` must be that of {filename!r} of {repo!r} at {revision!r}, {found}; got {sha256}.")
    return path

"""Folders of images, one per class: ImageNet as it is distributed."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._files import require_folder

_SUFFIXES = (".jpeg", ".jpg", ".png")


class ImageFolder:
    """Images in one folder per class, such as `train/n01440764/n01440764_10026.JPEG`.

    Classes are numbered in the order of their names, and examples in the order of classes and file names, so the
    numbers are the same on every machine. Images are read when asked for, and not decoded.
    """

    num_classes: int

    def __init__(self, path: str | os.PathLike[str], *, classes: Sequence[str] | None = None):
        """List the files.

        Args:
            path: the folder of a split, which holds the folders of the classes.
            classes: the names of the classes, in the order of their labels; by default all folders that there are,
                sorted. Give them to be told of a missing one.
        """
        root = require_folder("path", path)
        present = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        if not present:
            raise ValueError(f"`path` must hold one folder per class; {str(root)!r} holds none.")
        self.path = root
        self.classes = tuple(present if classes is None else classes)
        self.num_classes = len(self.classes)
        names: list[str] = []
        labels: list[int] = []
        for label, name in enumerate(self.classes):
            folder = root / name
            if not folder.is_dir():
                raise FileNotFoundError(f"`path` must hold a folder for each class; {str(folder)!r} is missing.")
            files = sorted(entry.name for entry in os.scandir(folder) if entry.name.lower().endswith(_SUFFIXES))
            if not files:
                raise ValueError(f"The folder of a class must hold images; {str(folder)!r} holds none.")
            names += [f"{name}/{file}" for file in files]
            labels += [label] * len(files)
        extra = sorted(set(present) - set(self.classes))
        if extra:
            raise ValueError(f"`classes` must name every folder of {str(root)!r}; {extra[0]!r} is not among them.")
        # Arrays and not lists of objects: a copy goes to every worker.
        self._names = np.array([name.encode() for name in names])
        self._labels = np.array(labels, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return one example, whose `x` is the content of its file."""
        content = pathlib.Path(self.describe(position)).read_bytes()
        return {"x": content, "y": self._labels[position], "i": np.int32(position)}

    def describe(self, position: int) -> str:
        """Return the file of one example."""
        return str(self.path / self._names[position].decode())

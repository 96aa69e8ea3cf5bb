"""Where are the weights of each policy version? In files of one folder, by which trainer and engine share them.

A version's file is there in whole or not at all. Which ones can go is for the trainer to say.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

State = Mapping[str, Tensor]
"""A policy's weights by name."""


class BadWeights(ValueError):
    """These are no weights, or none of this policy."""


class Weights:
    """The versions in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, version: int) -> Path:
        """The file of a version, there or not."""
        return self._folder / f"{version}.pt"

    def save(self, version: int, state: State) -> Path:
        """Stores a version."""
        path = self.path(version)
        begun = path.with_suffix(".part")
        torch.save(dict(state), begun)
        begun.replace(path)
        return path

    def load(self, version: int) -> State:
        """A version's weights; raises `BadWeights`."""
        return read_weights(self.path(version))

    def drop(self, version: int) -> None:
        """Deletes a version that nobody needs any more."""
        self.path(version).unlink(missing_ok=True)


def read_weights(path: Path) -> State:
    """The weights in a file; raises `BadWeights`."""
    try:
        state: State = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise BadWeights(f"{path} holds no weights: {str(error).splitlines()[0]}") from error
    return state

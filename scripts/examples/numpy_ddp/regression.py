"""The model: a two-layer network that learns the function of a fixed teacher from data made out of the seed."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]

INPUTS = 8


@dataclass(frozen=True)
class Regression:
    """Parameters are one flat vector, so that a gradient is one message: w1 (INPUTS x hidden), b1, w2 (hidden), b2."""

    seed: int
    hidden: int
    batch: int

    @property
    def size(self) -> int:
        return INPUTS * self.hidden + self.hidden + self.hidden + 1

    def initial(self) -> Vector:
        return np.random.default_rng([self.seed, 0]).normal(0.0, 0.3, self.size)

    def _split(self, parameters: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        weights = INPUTS * self.hidden
        return (
            parameters[:weights].reshape(INPUTS, self.hidden),
            parameters[weights : weights + self.hidden],
            parameters[weights + self.hidden : weights + 2 * self.hidden],
            parameters[-1:],
        )

    def samples(self, step: int, rank: int) -> tuple[Vector, Vector]:
        """The batch of one rank at one step: the same in every attempt, and no two ranks see the same rows."""
        teacher = np.random.default_rng([self.seed, 1]).normal(0.0, 0.4, INPUTS)
        rows = np.random.default_rng([self.seed, 2, step, rank]).normal(0.0, 1.0, (self.batch, INPUTS))
        return rows, np.sin(rows @ teacher)

    def loss_and_gradient(self, parameters: Vector, step: int, rank: int) -> tuple[float, Vector]:
        """Mean squared error over this rank's batch, and its gradient as a flat vector."""
        rows, wanted = self.samples(step, rank)
        w1, b1, w2, b2 = self._split(parameters)
        hidden = np.tanh(rows @ w1 + b1)
        error = hidden @ w2 + b2 - wanted
        slope = 2.0 * error / self.batch
        back = np.outer(slope, w2) * (1.0 - hidden**2)
        gradient = np.concatenate(
            ((rows.T @ back).ravel(), back.sum(axis=0), hidden.T @ slope, np.array([slope.sum()]))
        )
        return float(np.mean(error**2)), gradient

"""Regresses counts on exposure: losses ~ Poisson(seconds at risk x exp(b + x w)), with a ridge.

    y_i, e_i    losses and exposure of row i
    x_i         its covariates, standardised by their exposure-weighted mean and deviation
    w           weights; the ridge draws them to 0, the intercept b is free

With hazards constant in cells this is the piecewise exponential survival model (Holford, Biometrics 36, 1980;
Laird and Olivier, JASA 76, 1981). The objective is strictly concave, and Newton's method finds its one
maximum. Knows nothing of what the covariates mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Floats

_STEPS: Final = 60
_SETTLED: Final = 1e-9
_LARGEST_STEP: Final = 2.0
"""Limits a step: rates change by a factor e^2 at most, because exponentials explode on overshoot."""
_FASTEST: Final = 0.0
"""Caps the logarithm of the rate, in losses per second.

Far from all data, such as at ages that no spell ever reached, a steep fit would exceed all numbers.
"""


@dataclass(frozen=True, slots=True, eq=False)
class LogLinear:
    """Predicts the rate exp(``intercept`` + x @ ``weights``)."""

    intercept: float
    weights: Floats

    def predict_rates(self, covariates: Floats) -> Floats:
        """Returns rates, shape (n,), for covariates (n, k)."""
        return np.asarray(np.exp(np.minimum(self.intercept + covariates @ self.weights, _FASTEST)))


def ridge_poisson(covariates: Floats, losses: Floats, exposure: Floats, ridge: float) -> LogLinear:
    """Fits the penalised maximum likelihood of rows (n, k), (n,), (n,).

    Raises ValueError where nothing was exposed or nothing lost: no finite rate is the most likely then.
    """
    at_risk = exposure > 0
    rows, counts, times = covariates[at_risk], losses[at_risk], exposure[at_risk]
    if not len(rows) or counts.sum() <= 0:
        raise ValueError("a hazard regression needs exposure and at least one loss; give it more spells")
    middle = np.average(rows, axis=0, weights=times)
    spread = np.sqrt(np.average((rows - middle) ** 2, axis=0, weights=times))
    # A covariate that never varies would divide by zero; its weight goes to the ridge.
    spread[spread < 1e-12] = 1.0
    design = np.column_stack([np.ones(len(rows)), (rows - middle) / spread])
    penalty = np.full(design.shape[1], ridge)
    # The intercept is not penalised: the base rate must be free.
    penalty[0] = 0.0
    weights = np.zeros(design.shape[1])
    # Starting at the overall rate keeps the first Newton step small.
    weights[0] = np.log(counts.sum() / times.sum())
    for _ in range(_STEPS):
        expected = times * np.exp(design @ weights)
        slope = design.T @ (expected - counts) + penalty * weights
        step = np.linalg.solve((design * expected[:, None]).T @ design + np.diag(penalty), slope)
        largest = float(np.abs(step).max())
        weights -= step * min(1.0, _LARGEST_STEP / max(largest, _SETTLED))
        if largest < _SETTLED:
            break
    # Back from standardised covariates to the given ones.
    slopes = weights[1:] / spread
    return LogLinear(float(weights[0] - middle @ slopes), slopes)

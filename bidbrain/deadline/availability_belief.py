"""Learns how long spot stays up, and how long it stays away: hazards by age of spell.

    x        age of the current spell, in seconds
    kappa    shape of a Lomax (Pareto II) law of spell lengths
    theta    its scale, in seconds
    hazard   (1 - S(x + dt) / S(x)): the chance that a spell of age x ends within dt

    S(x) = (theta / (theta + x)) ** kappa

Spells of spot capacity are far from memoryless: young ones end soon, old ones last, on both sides. A Lomax
law is what exponential spells become when their rate itself varies as a gamma, so two numbers give a hazard
that falls with age. The law that holds in a market is not known beforehand: a few are held possible for each
side, and Bayes' rule weighs them by what is seen. Weights drift back to where they began, because markets
change.

Knows no prices, work or deadlines; sees only whether spot was up, and when.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from bidbrain.arrays import Flags, Floats
from pricing_data.model.units import Seconds


@dataclass(frozen=True, slots=True)
class LomaxLaw:
    """Describes one law of spell lengths."""

    shape: float
    scale_s: Seconds

    def __post_init__(self) -> None:
        if self.shape <= 0 or self.scale_s <= 0:
            raise ValueError(f"shape and scale must be above 0, not {self.shape} and {self.scale_s} s")

    def hazard(self, age_s: Floats, within_s: float) -> Floats:
        """Returns the chance that a spell of that age ends within ``within_s``; in the ages' shape."""
        hazard: Floats = -np.expm1(-self.shape * np.log1p(within_s / (self.scale_s + age_s)))
        return hazard


@dataclass(frozen=True, slots=True)
class SpellPrior:
    """Holds the L laws held possible, equally likely at first, and how long evidence counts.

    They hold for either side.
    """

    laws: tuple[LomaxLaw, ...]
    memory_s: Seconds
    """Evidence fades as exp(-time / memory)."""

    def __post_init__(self) -> None:
        if not self.laws or self.memory_s <= 0:
            raise ValueError("a prior needs at least one law, and a memory above 0 s")

    def pair_hazards(self, ages_s: Floats, within_s: float) -> Floats:
        """Returns hazards, shape (K, 2, A): the K = L x L pairs of laws, up side first, for A ages of spell.

        Pairs are ordered as ``BeliefBatch.pair_weights`` orders them.
        """
        hazards = [law.hazard(ages_s, within_s) for law in self.laws]
        return np.array([[of_up, of_down] for of_up in hazards for of_down in hazards])


PRIOR: Final = SpellPrior(
    laws=(LomaxLaw(0.5, Seconds(600)), LomaxLaw(1.0, Seconds(1200)), LomaxLaw(2.0, Seconds(2400))),
    memory_s=Seconds(120_000),
)
"""Covers heavy tails up to spells that seldom last a day. Chosen on recorded traces: docs/decisions/0008."""


@dataclass(frozen=True, slots=True, eq=False)
class BeliefBatch:
    """Holds what n watchers believe of their markets."""

    prior: SpellPrior
    up: Flags
    """Shape (n,): whether spot was up when last seen."""
    age_s: Floats
    """Shape (n,): age of the current spell, counted from when it was first seen."""
    up_weights: Floats
    """Shape (n, L): how likely each law is for up spells; rows sum to 1."""
    down_weights: Floats
    """The same for down spells."""

    @classmethod
    def first_look(cls, prior: SpellPrior, up: Flags) -> Self:
        """Takes the first look: the spell may be old, but that is not known."""
        even = np.full((len(up), len(prior.laws)), 1.0 / len(prior.laws))
        return cls(prior, up, np.zeros(len(up)), even, even)

    def observe(self, up: Flags, after_s: float) -> Self:
        """Returns the beliefs after another look, ``after_s`` seconds later."""
        within_s = max(after_s, 1.0)  # two looks within a second may differ, which no law allows
        ends = np.stack([law.hazard(self.age_s, within_s) for law in self.prior.laws], axis=-1)
        ended = up != self.up
        likelihood = np.where(ended[:, None], ends, 1.0 - ends)
        kept = math.exp(-after_s / self.prior.memory_s)
        return replace(
            self,
            up=up,
            age_s=np.where(ended, 0.0, self.age_s + after_s),
            # A look tells only about the side that the spell was on; the other side's likelihood is 1.
            up_weights=_update_weights(self.up_weights, np.where(self.up[:, None], likelihood, 1.0), kept),
            down_weights=_update_weights(
                self.down_weights, np.where(self.up[:, None], 1.0, likelihood), kept
            ),
        )

    @property
    def pair_weights(self) -> Floats:
        """Returns the weights of every pair of laws, shape (n, K).

        The sides are learned apart, so weights multiply.
        """
        pairs = self.up_weights[:, :, None] * self.down_weights[:, None, :]
        return pairs.reshape(len(self.up), -1)


def _update_weights(weights: Floats, likelihood: Floats, kept: float) -> Floats:
    """Applies Bayes' rule, then the drift back to even weights."""
    posterior = weights * likelihood
    # Never zero: every law gives some chance to both outcomes.
    posterior /= posterior.sum(axis=1, keepdims=True)
    drifted: Floats = kept * posterior + (1.0 - kept) / weights.shape[1]
    return drifted


@dataclass(frozen=True, slots=True)
class Belief:
    """Holds what one live run believes.

    Plain data, updated look by look, so that a replay arrives at the same.
    """

    prior: SpellPrior
    up: bool
    seen_at_s: Seconds
    age_s: Seconds
    up_weights: tuple[float, ...]
    down_weights: tuple[float, ...]

    @classmethod
    def first_look(cls, prior: SpellPrior, up: bool, at_s: Seconds) -> Self:
        return cls._from_batch(BeliefBatch.first_look(prior, np.array([up])), at_s)

    def observe(self, up: bool, at_s: Seconds) -> Self:
        """Returns the belief after a look at ``at_s``.

        Raises ValueError where that is before the last one.
        """
        if at_s < self.seen_at_s:
            raise ValueError(f"seen at {at_s} s after {self.seen_at_s} s; looks must be folded in order")
        return self._from_batch(self.as_batch().observe(np.array([up]), at_s - self.seen_at_s), at_s)

    def as_batch(self) -> BeliefBatch:
        """Returns this belief as one row."""
        return BeliefBatch(
            self.prior,
            np.array([self.up]),
            np.array([float(self.age_s)]),
            np.array([self.up_weights]),
            np.array([self.down_weights]),
        )

    @classmethod
    def _from_batch(cls, beliefs: BeliefBatch, at_s: Seconds) -> Self:
        return cls(
            beliefs.prior,
            bool(beliefs.up[0]),
            at_s,
            Seconds(float(beliefs.age_s[0])),
            tuple(beliefs.up_weights[0].tolist()),
            tuple(beliefs.down_weights[0].tolist()),
        )

"""Implements multinomial logistic regression: a class's probability is a softmax of linear scores.

Minimizes sum over rows of -log p(label) + regularization / 2 * |W|^2, where intercepts are free: the
objective of scikit-learn's LogisticRegression with C = 1 / regularization. Reported per row.

A clock is one accelerated gradient step (Nesterov, 1983) on all rows, to which each shard adds its part.
Steps need no tuning: the Hessian is nowhere above X'X / 2 for each class (Böhning, 1992, "Multinomial
logistic regression algorithm", theorem 1), so the gradient is preconditioned by the inverse of that bound.
The model's rows are the features and the intercept, first the point ahead at which gradients are taken,
which is what training returns, then the point of the last step; columns are the classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from agileml.api import ApplicationError, Arrays, Columns, Counts, Kind, Outcome, Survey
from agileml.model_shape import Shape
from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch

if TYPE_CHECKING:
    from agileml.data.tables import Table

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LogisticRegression:
    """Learns classes. ``momentum``: how far a step goes on in the direction of the last one, at most.

    0 is plain descent. Where reads may be stale, less is more: try 0.9.
    """

    metric: ClassVar[str] = "log loss"
    columns: ClassVar[Columns] = Columns(
        {"label": Kind.KEY}, others=Kind.NUMBER, aliases={"label": ("class", "target", "category")}
    )

    regularization: float = 1.0
    momentum: float = 1.0

    def survey(self, table: Table, shards: int) -> Survey:
        """Makes one pass for the classes, and for the bound of the Hessian."""
        classes: npt.NDArray[np.int64] = np.empty(0, np.int64)
        gram, names = np.zeros((1, 1)), ""
        for batch in table.batches():
            classes = np.union1d(classes, batch["label"])
            features = _feature_matrix(batch)
            gram = gram + features.T @ features if len(gram) == features.shape[1] or not names else gram
            if names not in ("", _feature_names(batch)):
                raise ApplicationError(
                    f"{table.location}: some rows have {names}, others {_feature_names(batch)}"
                )
            names = _feature_names(batch)
        penalty = np.full(len(gram), self.regularization)
        penalty[-1] = 0.0
        # A pseudo-inverse: columns that depend on each other, or hold one value alone, make the bound
        # singular.
        inverse = np.linalg.pinv(gram / 2 + np.diag(penalty), hermitian=True)
        common = {"inverse": inverse, "penalty": penalty, "rows": np.array(table.rows), "classes": classes}
        index = {"classes": table.named("label", classes), "features": np.array(names.split(", "))}
        return Survey(Shape(2 * len(gram), len(classes)), index, common)

    def largest_model(self, words: int) -> int:
        """Counts two rows for each feature and the constant; classes times features are no more than the
        words.
        """
        return 4 * words

    def clock_core_seconds(self, counts: Counts) -> float:
        """Estimates from measurements on one core, with 12 features in 4 classes and 100 in 10."""
        classes = next(iter(counts.distinct.values()), 2)
        features = counts.values / max(counts.rows, 1)
        return counts.rows * (0.05 + 0.01 * classes + 0.00016 * features * classes) * 1e-6

    def prepare(self, rows: Arrays, numbers: Rows, survey: Survey) -> Arrays:
        """Returns features (rows, features + 1), labels as places in the classes, and
        the share of all rows.
        """
        common = dict(survey.common)
        label = np.searchsorted(common.pop("classes"), rows["label"])
        share = np.array(len(label) / common["rows"])
        return {**common, "x": _feature_matrix(rows), "label": label, "share": share}

    def initial(self, rows: Rows, shape: Shape) -> Matrix:
        return np.zeros((len(rows), shape.columns), np.float32)

    def rows(self, shard: Arrays) -> Rows:
        return np.arange(2 * len(shard["penalty"]))

    def process(self, shard: Arrays, values: Matrix, seed: tuple[int, int]) -> Outcome:
        """Computes the shard's part of one accelerated step (Nesterov, 1983), with momentum up to
        ``momentum``.

        ``values``: twice (features + 1, classes), the point ahead and the point of the last step. The step is
        the shard's preconditioned gradient at the point ahead: the whole step is the sum over shards, so each
        passes on its ``share`` of the penalty and of the way between the points. The total is the shard's
        penalized log loss at the point ahead, over as many rows as the count.
        """
        x, label, share = shard["x"], shard["label"], float(shard["share"])
        ahead, last = np.split(values.astype(np.float64), 2)
        scores = x @ ahead
        # The softmax stays the same, and exp does not overflow.
        scores -= scores.max(axis=1, keepdims=True)
        error = np.exp(scores)
        sums = error.sum(axis=1, keepdims=True)
        mine = np.arange(len(label)), label
        penalty = share * shard["penalty"][:, None] * ahead
        total = float(np.sum(np.log(sums[:, 0]) - scores[mine]) + np.sum(penalty * ahead) / 2)
        error /= sums
        error[mine] -= 1
        step = shard["inverse"] @ (x.T @ error + penalty)
        onward = min(self.momentum, seed[1] / (seed[1] + 3))
        passed = share * (ahead - last)
        delta = np.concatenate([onward * passed - (1 + onward) * step, passed - step])
        return Outcome(Patch(self.rows(shard), delta.astype(np.float32)), total, float(len(label)))

    def objective(self, total: float, count: float) -> float:
        """Returns the penalized log loss per row."""
        return total / count


def _feature_matrix(batch: Arrays) -> Floats:
    """Returns all columns but the label, and ones for the intercept: (rows, features + 1)."""
    blocks = [values for name, values in batch.items() if name != "label"]
    return np.column_stack([*blocks, np.ones(len(batch["label"]))])


def _feature_names(batch: Arrays) -> str:
    widths = {name: values.shape[1:] for name, values in batch.items() if name != "label"}
    return ", ".join(f"{name}[{width[0]}]" if width else name for name, width in widths.items())

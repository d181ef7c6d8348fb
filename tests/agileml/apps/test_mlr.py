"""Logistic regression: the trusted library's objective, whatever the shards, bit for bit under evictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from agileml.api import ApplicationError
from agileml.apps import planted_classes
from agileml.apps.mlr import LogisticRegression
from agileml.data.sharding import cut_input
from tests.agileml.simulated.memory import train

Floats = npt.NDArray[np.float64]


def objective(weights: Floats, x: Floats, label: npt.NDArray[np.int64], regularization: float) -> float:
    """Written down independently: the penalized log loss per row; the last weight is the intercept."""
    scores = x @ weights[:-1] + weights[-1]
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    loss = -np.log(likely[np.arange(len(x)), label]).sum()
    return float((loss + regularization / 2 * np.sum(weights[:-1] ** 2)) / len(x))


def trusted(x: Floats, label: npt.NDArray[np.int64], regularization: float) -> float:
    from sklearn.linear_model import LogisticRegression as Trusted  # takes a second or two

    fitted = Trusted(C=1 / regularization, solver="newton-cholesky", tol=1e-8, max_iter=200).fit(x, label)
    return objective(np.vstack([fitted.coef_.T, fitted.intercept_]), x, label, regularization)


def test_the_objective_on_real_digits_comes_within_two_percent_of_scikit_learn(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    regularization, clocks = 10.0, 160
    x, label = load_digits(return_X_y=True)
    np.savez(tmp_path / "digits.npz", label=label, x=x)
    app = LogisticRegression(regularization)
    trained = train(app, tmp_path / "digits.npz", tmp_path / "cut", 4, clocks)
    weights = trained.model[: x.shape[1] + 1].astype(np.float64)
    reached = objective(weights, x, label, regularization)
    assert reached == pytest.approx(trusted(x, label, regularization), rel=0.02)
    assert trained.objectives[-1] == pytest.approx(reached, rel=0.01)


def test_planted_classes_of_unequal_scales_too_and_cut_anyhow(tmp_path: Path) -> None:
    planted_classes.main([str(tmp_path / "in.csv.gz"), "--rows=1500", "--seed=3"])
    data = np.loadtxt(tmp_path / "in.csv.gz", delimiter=",", skiprows=1)
    label, x = data[:, 0].astype(np.int64), data[:, 1:]
    reached = [
        train(LogisticRegression(1.0), tmp_path / "in.csv.gz", tmp_path / f"cut {n}", n, 80).objectives[-1]
        for n in (1, 7)
    ]
    assert reached[0] == pytest.approx(trusted(x, label, 1.0), rel=0.02)
    assert reached[1] == pytest.approx(reached[0], rel=1e-5)


def test_the_first_objective_is_that_of_guessing(tmp_path: Path) -> None:
    planted_classes.main([str(tmp_path / "in.csv"), "--rows=50", "--classes=3"])
    trained = train(LogisticRegression(), tmp_path / "in.csv", tmp_path / "cut", 3, 1)
    assert trained.objectives == [pytest.approx(np.log(3))]


def test_plain_descent_never_rises(tmp_path: Path) -> None:
    """The bound of the Hessian promises this (Böhning, 1992)."""
    planted_classes.main([str(tmp_path / "in.csv"), "--rows=300"])
    trained = train(LogisticRegression(0.1, momentum=0.0), tmp_path / "in.csv", tmp_path / "cut", 3, 40)
    assert np.all(np.diff(trained.objectives) < 1e-6)


def test_what_the_columns_and_classes_are_is_kept_beside_the_model(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", label=np.array([7, -1, 7]), z=np.ones(3), a=np.eye(3)[:, :2])
    trained = train(LogisticRegression(), tmp_path / "in.npz", tmp_path / "cut", 5, 3)
    index = trained.data.read_index()
    assert index["classes"].tolist() == [-1, 7]
    assert index["features"].tolist() == ["z", "a[2]"]
    assert trained.model.shape == (2 * 4, 2)


def test_files_with_other_features_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,x\n1,2\n")
    (tmp_path / "b.csv").write_text("label,x,y\n1,2,3\n")
    with pytest.raises(ApplicationError, match="some rows have x, others x, y"):
        cut_input(LogisticRegression(), tmp_path, 2, tmp_path / "cut")

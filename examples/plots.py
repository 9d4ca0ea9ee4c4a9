"""Calibration, PIT, intervals and dependence of a fitted model, in one picture."""

from matplotlib import pyplot
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score, train_test_split

from sigmax import LinearRegressor, SigmaxRegressor
from sigmax.plots import CalibrationDisplay, DependenceDisplay, IntervalDisplay, PITDisplay
from sigmax.scorers import crps

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X, X_new, y, y_new = train_test_split(X, y, random_state=0)
model = SigmaxRegressor("quick", random_state=0).fit(X, y)

figure, axes = pyplot.subplots(2, 2, figsize=(8.5, 7), layout="constrained")
shown = CalibrationDisplay.from_estimator(model, X_new, y_new, ax=axes[0, 0])
PITDisplay.from_estimator(model, X_new, y_new, ax=axes[0, 1])
IntervalDisplay.from_estimator(model, X_new, y_new, ax=axes[1, 0])
DependenceDisplay.from_estimator(model, X, "bmi", ax=axes[1, 1])
figure.savefig("plots.png", dpi=72)

for nominal, observed in zip(shown.nominal, shown.observed, strict=True):
    if round(nominal, 2) in (0.5, 0.9):
        print(f"{nominal:.0%} intervals contain {observed:.0%} of {shown.n_targets} new targets")
scores = cross_val_score(LinearRegressor(), X, y, scoring=crps, cv=5)
print(f"CRPS of a linear regression in five folds: {-scores.mean():.1f}")

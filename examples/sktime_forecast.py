"""A probabilistic forecast by sktime's reduction: lags of a series are the features."""

import numpy as np
import pandas as pd
from sktime.forecasting.compose import make_reduction

from sigmax import MeanVarianceRegressor
from sigmax.integrations.skpro import SkproRegressor

rng = np.random.default_rng(0)
month = np.arange(300)
season = np.sin(2 * np.pi * month / 12)
noise = np.where(season > 0, 0.8, 0.2) * rng.normal(size=300)  # the noise has seasons, too
times = pd.period_range("2000-01", periods=300, freq="M")
series = pd.Series(10 + 3 * season + noise, index=times, name="demand")
past, future = series[:-6], series[-6:]

ensemble = MeanVarianceRegressor(preset="fast", n_members=3, n_steps=500, random_state=0)
forecaster = make_reduction(SkproRegressor(ensemble), strategy="direct", window_length=12)
forecaster.fit(past, fh=[1, 3, 6])  # one model for each step ahead
interval = forecaster.predict_interval(coverage=0.9)
for time, (lower, upper) in zip(interval.index, interval.to_numpy(), strict=True):
    print(f"{time}: {lower:.1f} to {upper:.1f}, and it was {future[time]:.1f}")

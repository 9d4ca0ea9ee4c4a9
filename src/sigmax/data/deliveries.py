"""Simulated table of deliveries: categories, times, missing values and a skewed target."""

from typing import Any

import numpy as np
import pandas as pd

DISTRICTS = ("Harbour", "Old Town", "Hillside", "Airport", "Riverside", "Mills", "Park", "Campus")
VEHICLES = ("bike", "scooter", "car", "van")
WEATHER = ("dry", "rain", "snow")


def make_deliveries(n_rows: int = 1000, seed: int = 0) -> Any:
    """Simulate deliveries as a pandas data frame; the target is ``minutes``.

    Mean and variance of the target depend on distance, vehicle, weather and hour. One value in
    twelve of weight and weather is missing.

    Examples
    --------
    >>> frame = make_deliveries(100)
    >>> frame.shape, list(frame.columns)[-1], bool(frame["weather"].isna().any())
    ((100, 7), 'minutes', True)
    """
    rng = np.random.default_rng(seed)
    minute = np.sort(rng.integers(0, 180 * 14 * 60, n_rows))  # half a year, from 8 to 22 o'clock
    day, time = np.divmod(minute, 14 * 60)
    hour = 8 + time / 60
    district, vehicle = rng.integers(0, len(DISTRICTS), n_rows), rng.integers(0, 4, n_rows)
    weather = rng.choice(3, n_rows, p=[0.6, 0.3, 0.1])
    distance = np.round(rng.gamma(3.0, 0.8, n_rows) + 0.5 * (district == 3), 2)
    weight = np.round(rng.gamma(2.0, 2.0, n_rows), 1)
    speed = np.array([15.0, 25.0, 30.0, 26.0])[vehicle]
    rush = np.exp(-((hour - 8.5) ** 2) / 2) + 1.2 * np.exp(-((hour - 17.5) ** 2) / 3)
    slow = 1 + rush * (vehicle >= 2) + np.array([0.0, 0.25, 0.8])[weather]
    spread = 0.08 + 0.12 * (weather == 2) + 0.1 * rush * (vehicle >= 2) + 0.1 * (vehicle == 0)
    stairs = np.array([4.0, 8.0, 6.0, 3.0, 4.0, 5.0, 4.0, 7.0])[district] + 0.4 * weight
    minutes = (60 * distance / speed * slow + stairs) * np.exp(spread * rng.normal(size=n_rows))
    start = pd.Timestamp("2025-03-01 08:00")
    ordered: Any = start + pd.to_timedelta(day * 24 * 60 + time, unit="min")
    frame = pd.DataFrame(
        {
            "ordered": ordered.strftime("%Y-%m-%d %H:%M"),
            "district": np.array(DISTRICTS)[district],
            "vehicle": np.array(VEHICLES)[vehicle],
            "weather": np.array(WEATHER)[weather],
            "distance_km": distance,
            "weight_kg": weight,
            "minutes": np.round(minutes, 1),
        }
    )
    for column in ("weather", "weight_kg"):
        frame.loc[rng.random(n_rows) < 1 / 12, column] = None
    return frame

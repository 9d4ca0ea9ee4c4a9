# %% [markdown]
# # From a CSV file to a report
#
# 1,000 made-up deliveries: we want to predict how many minutes the next ones will take.

# %%
import json
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from sigmax.data.synthetic import make_deliveries

deliveries = make_deliveries(1200)
deliveries[:1000].to_csv("deliveries.csv", index=False)
deliveries[1000:].drop(columns="minutes").to_csv("new.csv", index=False)
deliveries.head()

# %% [markdown]
# ## Describe
#
# `sigmax describe` shows how each column was read, and warns of likely problems.

# %% [bash]
# sigmax describe deliveries.csv --target minutes

# %% [markdown]
# ## Fit
#
# The warning recommends `--time-column`: the last 200 deliveries are held out for the scores.
# `--effort quick` fits no networks.

# %% [bash]
# sigmax fit deliveries.csv --target minutes --time-column ordered --effort quick

# %% [markdown]
# The folder has the model, the scores and a report that opens in any browser.

# %%
print(*sorted(path.name for path in Path("model").iterdir()), sep="\n")
scores = json.loads(Path("model/scores.json").read_text())
print(scores["verdict"])

# %% [markdown]
# ## Predict

# %% [bash]
# sigmax predict model new.csv

# %%
predicted = pd.read_csv("new_predicted.csv")
predicted[["district", "vehicle", "distance_km", "mean", "lower", "upper"]].head().round(1)

# %% [markdown]
# These deliveries were made up, so we know how long they took. Points outside the bars are
# outside their 90 % intervals.

# %%
shown, actual = predicted[:60], deliveries["minutes"][1000:1060]
figure, axes = plt.subplots(figsize=(7, 3))
axes.vlines(shown.index, shown["lower"], shown["upper"], color="#9ec3ea", lw=4)
axes.plot(shown.index, actual, "o", ms=3, color="#1f5fa8")
axes.set(xlabel="new delivery", ylabel="minutes")
plt.show()

# %%
minutes = deliveries["minutes"][1000:].to_numpy()
is_inside = (predicted["lower"] <= minutes) & (minutes <= predicted["upper"])
print(f"{is_inside.sum()} of {len(minutes)} are inside their 90 % intervals")

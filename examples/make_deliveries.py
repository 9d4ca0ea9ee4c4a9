"""Files for the first steps: deliveries to learn from, later ones, and new ones to predict."""

from sigmax.data.synthetic import make_deliveries

table = make_deliveries(1400)  # by time; `minutes` is what one would like to know beforehand
table[:1000].to_csv("deliveries.csv", index=False)
table[1000:1200].to_csv("later.csv", index=False)
table[1200:].drop(columns="minutes").to_csv("new.csv", index=False)

"""A model on disk: numbers and JSON, checked byte by byte, and nothing that could be executed."""

from pathlib import Path

import numpy as np

from sigmax import LocalRegressor
from sigmax.errors import SigmaxError

rng = np.random.default_rng(0)
X = rng.normal(0, 1, (500, 2))
y = np.sin(2 * X[:, 0]) + X[:, 1] + rng.normal(0, 0.2, 500)
model = LocalRegressor("fast", random_state=0).fit(X, y)
model.save("model")
print("files:", *sorted(path.name for path in Path("model").iterdir()))

same = LocalRegressor.load("model")
print("same predictions:", np.array_equal(model.predict(X[:5]), same.predict(X[:5])))

file = sorted(Path("model").glob("*.safetensors"))[0]
content = bytearray(file.read_bytes())
content[-1] ^= 1  # one bit
file.write_bytes(content)
try:
    LocalRegressor.load("model")
except SigmaxError as error:
    print(f"refused: {error}")

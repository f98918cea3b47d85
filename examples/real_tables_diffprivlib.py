"""The competitor of real_tables.py: diffprivlib in an environment of its own; see there.

python real_tables_diffprivlib.py rows.npz SEED EPSILON ...     # prints a file of predictions
"""

import sys
import warnings

import numpy as np
from diffprivlib.models import LinearRegression, LogisticRegression

warnings.simplefilter("ignore")
place, seed, *epsilons = sys.argv[1:]
rows = np.load(place)
found = []
for epsilon in map(float, epsilons):
    if rows["bounds"].size:
        bounds = {"bounds_X": (-1.0, 1.0), "bounds_y": tuple(rows["bounds"].tolist())}
        model = LinearRegression(epsilon=epsilon, random_state=int(seed), **bounds)
    else:  # its ridge is 1/(C n); the norm bound is public
        model = LogisticRegression(epsilon=epsilon, data_norm=1.0, random_state=int(seed))
    found.append(model.fit(rows["X"], rows["y"]).predict(rows["test"]))
np.save(place + ".npy", np.array(found))
sys.stdout.write(place + ".npy")

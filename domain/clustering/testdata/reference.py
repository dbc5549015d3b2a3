"""The reference that the tests of this package measure themselves by.

known FOLDER            writes scikit-learn's known classes as JSON: {"rows": [[x, ...], ...], "classes": [c, ...]}
fit FILE DIMS K THREADS fits float32 vectors as KMeans does with ten starts, and prints inertia, seconds of CPU and seconds
"""
import json
import os
import sys

# How a python without scikit-learn ends.
NO_REFERENCE = 77


def known(folder):
    from sklearn import datasets
    for name in ("iris", "wine", "breast_cancer", "digits"):
        d = getattr(datasets, "load_" + name)()
        with open(os.path.join(folder, name + ".json"), "w") as f:
            json.dump({"rows": d.data.tolist(), "classes": d.target.tolist()}, f)


def fit(file, dims, k, threads):
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = threads
    import time
    import numpy
    from sklearn.cluster import KMeans
    points = numpy.fromfile(file, dtype=numpy.float32).reshape(-1, int(dims))
    cpu, wall = time.process_time(), time.perf_counter()
    model = KMeans(n_clusters=int(k), n_init=10, random_state=1).fit(points)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    # To be comparable, the inertia is taken in double precision from the means.
    inertia = 0.0
    for c in range(int(k)):
        members = points[model.labels_ == c].astype(numpy.float64)
        inertia += ((members - members.mean(axis=0)) ** 2).sum()
    print(json.dumps({"inertia": inertia, "cpu": cpu, "wall": wall}))


try:
    {"known": known, "fit": fit}[sys.argv[1]](*sys.argv[2:])
except ModuleNotFoundError:
    sys.exit(NO_REFERENCE)

"""A conditional model: what each of the ten digits looks like, P(x | class), as a picture with a row for each class.

    python examples/class_digits.py class_digits.png

A case is its context, here the class as ten one-hot columns, and then its 64 pixels; the model is of the pixels given
the class. From the command line the same is --given 0-9, for a file of such cases.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import nvil
from nvil.evaluation import case_bounds
from nvil.report.pictures import save_grid

CLASSES = np.eye(10, dtype=np.uint8)


def cases():
    """Training and test cases, and the classes of the test cases."""
    pixels, classes = load_digits(return_X_y=True)
    whole = np.hstack([CLASSES[classes], pixels >= 8]).astype(np.uint8)
    order = np.random.default_rng(0).permutation(len(whole))
    return whole[order[297:]], whole[order[:297]], classes[order[:297]]


def classified(pair, test):
    """The class of every case that makes its pixels likeliest, by the bound: Bayes' rule, as classes are equal."""
    bounds = []
    for one_hot in CLASSES:
        as_if = np.hstack([np.tile(one_hot, (len(test), 1)), test[:, 10:]])
        bounds.append(case_bounds(pair, as_if)[0])
    return np.argmax(bounds, axis=0)


def main(picture, updates=20_000):
    train, test, classes = cases()
    pair = nvil.sbn(74, (50,), given=10, mean=train.mean(axis=0))
    for report in nvil.fit(pair, train, nvil.Learner(batch_size=50), updates=updates, report_every=5000):
        print(report)
    pair = report.best.pair
    print(nvil.evaluate(pair, test))
    print(f"{np.mean(classified(pair, test) == classes):.1%} of the test cases classified right")
    drawn = nvil.sample(pair, 100, given=np.repeat(CLASSES, 10, axis=0))
    save_grid(Path(picture), drawn.mean, (8, 8))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "class_digits.png")

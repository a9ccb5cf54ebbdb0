# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator and KerasModel on a real cluster, beside one process."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpccoll

keras: Any = None
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True, scope="module")
def _with_torch() -> None:
    """Import Keras with the backend torch, not before these tests run."""
    global keras
    found = importlib.util.find_spec("tensorflow")
    if found and found.origin is None:  # the folder tests/tensorflow, which Keras would take for TensorFlow
        sys.modules["tensorflow"] = None  # type: ignore[assignment]
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras", reason="no Keras: pip install 'hpccoll[keras]'")


def data(rows: int) -> tuple[Any, Any, Any]:
    values = np.random.default_rng(5).standard_normal((rows, 2)).astype(np.float32)
    weights = (1 + np.arange(rows) % 3).astype(np.float32)
    return values, values @ np.array([1.0, -2.0], np.float32) + np.float32(0.5), weights


def table(spark: Any, rows: int) -> Any:
    values = [(float(a), float(b), float(y), float(w)) for (a, b), y, w in zip(*data(rows), strict=True)]
    return spark.createDataFrame(values, ["a", "b", "y", "w"])


def linear() -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def estimator(**parameters: Any) -> Any:
    from hpccoll.spark.keras import KerasEstimator

    default = {"model": linear(), "optimizer": keras.optimizers.SGD(0.05, momentum=0.9), "loss": "mse", "num_proc": 2,
               "feature_cols": ["a", "b"], "label_cols": ["y"], "random_seed": 7, "verbose": 0}  # fmt: skip
    return KerasEstimator(**default | parameters)


def flat(model: Any) -> Any:
    return np.concatenate([np.ravel(weight) for weight in model.get_weights()])


@pytest.mark.parametrize(("rows", "weighted"), [(40, False), (41, True)])
def test_the_weights_are_those_of_one_process(by_value: Any, tmp_path: Path, rows: int, weighted: bool) -> None:
    """A step takes all rows, which 2 ranks share; with 41 of them unevenly. Epochs 3 and 4 are a resumed run."""
    from hpccoll.spark.common.store import Store

    run: dict[str, Any] = {"batch_size": 100, "scale_learning_rate": False}
    run |= {"store": Store.create(str(tmp_path)), "run_id": "one"} if weighted else {}
    run |= {"sample_weight_col": "w"} if weighted else {}
    df = table(by_value, rows)
    if weighted:
        estimator(epochs=2, **run).fit(df)
    fitted = estimator(epochs=4, **run).fit(df)
    model = linear()
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    values, labels, weights = data(rows)
    model.fit(values, labels, rows, 4, verbose=0, shuffle=False, sample_weight=weights if weighted else None)
    np.testing.assert_allclose(flat(fitted.getModel()), flat(model), rtol=1e-4)
    assert len(fitted.getHistory()["loss"]) == 4


def test_digits_with_callbacks_validation_and_persistence(by_value: Any, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors

    from hpccoll.spark.keras import KerasModel

    digits = pytest.importorskip("sklearn.datasets").load_digits()
    one_hot = np.eye(10)[digits.target]
    rows = [(Vectors.dense(image), Vectors.dense(vector), int(label))
            for image, vector, label in zip(digits.data / 16, one_hot, digits.target, strict=True)]  # fmt: skip
    df = by_value.createDataFrame(rows, ["features", "label_vec", "label"])
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Conv2D(8, 3, activation="relu"),
                              keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")])  # fmt: skip
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=10)
    own = estimator(model=model, optimizer=keras.optimizers.Adam(0.003), loss="categorical_crossentropy",
                    metrics=["accuracy"], feature_cols=["features"], label_cols=["label_vec"], epochs=8, batch_size=64,
                    validation=0.1, callbacks=[stop])  # fmt: skip
    fitted = own.fit(df).setOutputCols(["label_prob"])
    assert set(fitted.getHistory()) >= {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert fitted.getHistory()["val_accuracy"][-1] > 0.8
    fitted.write().overwrite().save(str(tmp_path / "model"))
    loaded = KerasModel.load(str(tmp_path / "model"))
    out = loaded.transform(df).select("label", "label_prob").collect()
    assert sum(int(row.label_prob.toArray().argmax()) == row.label for row in out) > 0.9 * len(rows)


def test_wrong_parameters_are_refused_before_the_job(by_value: Any) -> None:
    df = table(by_value, 8)
    schedule = keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"feature_cols": ["a", "c"]}, "there is no column c"),
        ({"model": keras.Sequential([keras.layers.Dense(1)])}, "no keras.Model that is built"),
        ({"optimizer": schedule}, "the optimizer's rate is a schedule"),
        ({"checkpoint_callback": stop}, "give the estimator a store"),
    ]
    for parameters, text in wrong:
        with pytest.raises(hpccoll.InvalidArgumentError, match=text):
            estimator(**parameters).fit(df)


def stop() -> None:
    """Stand for a callback."""

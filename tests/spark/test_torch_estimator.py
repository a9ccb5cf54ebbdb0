# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator and TorchModel on a real cluster, beside one process that trains on the same rows."""

import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spark_tables import table

import hpccoll

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'hpccoll[torch]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]

RATE, MOMENTUM = 0.05, 0.9


def minibatch(folder: str) -> Any:
    """Make a step of training that also writes what it trains with into a file of its rank."""

    def step(model: Any, optimizer: Any, transform: Any, loss_fn: Any, inputs: Any, labels: Any, weights: Any) -> Any:
        optimizer.zero_grad()
        outputs, labels = transform(model(*inputs), labels)
        loss = loss_fn(outputs, labels, weights)
        loss.backward()
        optimizer.step()
        with Path(folder, f"rank{hpccoll.rank()}").open("ab") as file:
            file.write(np.column_stack([inputs[0].numpy(), labels[0].numpy(), weights.numpy()]).tobytes())
        with Path(folder, f"sizes{hpccoll.rank()}").open("a") as file:
            file.write(f"{len(weights)}\n")
        return outputs, loss

    return step


def recorded(folder: Path, ranks: int) -> Iterator[Any]:
    """Yield the rows of each step, of all ranks."""
    rows = [np.frombuffer((folder / f"rank{rank}").read_bytes(), np.float32).reshape(-1, 4) for rank in range(ranks)]
    sizes = [[int(line) for line in (folder / f"sizes{rank}").read_text().split()] for rank in range(ranks)]
    assert len({len(own) for own in sizes}) == 1
    at = [0] * ranks
    for step in zip(*sizes, strict=True):
        yield np.concatenate([rows[rank][at[rank] : at[rank] + size] for rank, size in enumerate(step)])
        at = [start + size for start, size in zip(at, step, strict=True)]


def linear() -> tuple[Any, Any]:
    torch.manual_seed(3)
    model = torch.nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)


def estimator(**parameters: Any) -> Any:
    from hpccoll.spark.torch import TorchEstimator

    model, optimizer = linear()
    default = {"model": model, "optimizer": optimizer, "loss": torch.nn.functional.mse_loss, "random_seed": 7,
               "feature_cols": ["a", "b"], "label_cols": ["y"], "num_proc": 2, "verbose": 0}  # fmt: skip
    return TorchEstimator(**default | parameters)


def numbers(model: Any) -> Any:
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in model.parameters()])


@pytest.mark.parametrize(("rows", "ranks", "stored"), [(96, 2, False), (101, 3, False), (101, 3, True)])
def test_the_weights_are_those_of_one_process(
    by_value: Any, tmp_path: Path, rows: int, ranks: int, stored: bool
) -> None:
    """One process makes the same steps, each with the rows of all ranks at once, in float64."""
    from hpccoll.spark.common.store import Store

    store = {"store": Store.create(str(tmp_path / "store"))} if stored else {}
    own = estimator(num_proc=ranks, epochs=3, batch_size=8, sample_weight_col="w", scale_learning_rate=False,
                    train_minibatch_fn=minibatch(str(tmp_path)), **store)  # fmt: skip
    before = numbers(own.getModel())
    fitted = own.fit(table(by_value, rows))
    model, _ = linear()
    model = model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    seen = []
    for step in recorded(tmp_path, ranks):
        a, b, y, w = torch.from_numpy(step.astype(np.float64)).T
        loss = ((model(torch.stack([a, b], 1))[:, 0] - y) ** 2 * w).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(step[:, 0])
    epoch = len(seen) // 3
    each = [np.sort(np.concatenate(seen[at * epoch : (at + 1) * epoch])) for at in range(3)]
    assert len(each[0]) == rows
    assert all((each[0] == other).all() for other in each[1:])  # each row once per epoch
    assert not np.array_equal(np.concatenate(seen[:epoch]), np.concatenate(seen[epoch : 2 * epoch]))  # shuffled
    np.testing.assert_allclose(numbers(fitted.getModel()), numbers(model), rtol=2e-5)
    assert np.array_equal(before, numbers(own.getModel()))  # fit() leaves the estimator's model
    assert not list((tmp_path / "store" / "data").glob("*")) if stored else True


def test_horovods_rule_for_the_rate(by_value: Any) -> None:
    """The rate is multiplied by the number of ranks, and the optimizer of the model has the rate that was given."""
    df = table(by_value, 64)
    scaled = estimator(num_proc=2, batch_size=100, epochs=2).fit(df)
    model, optimizer = linear()
    optimizer.param_groups[0]["lr"] = 2 * RATE
    plain = estimator(num_proc=2, batch_size=100, epochs=2, scale_learning_rate=False, model=model, optimizer=optimizer)
    np.testing.assert_allclose(numbers(scaled.getModel()), numbers(plain.fit(df).getModel()), rtol=1e-5)
    assert scaled.getOptimizer().param_groups[0]["lr"] == RATE


def test_validation_metrics_and_the_columns_of_predictions(by_value: Any) -> None:
    df = table(by_value, 80)
    own = estimator(epochs=4, batch_size=10, validation="held", metrics=[[torch.nn.functional.l1_loss]])
    fitted = own.fit(df)
    history = fitted.getHistory()
    assert [entry["epoch"] for entry in history] == [0, 1, 2, 3]
    held = df.where("held").toPandas()
    outputs = fitted.getModel()(torch.from_numpy(held[["a", "b"]].to_numpy(np.float32)))[:, 0].detach().numpy()
    expected = np.mean((outputs - held["y"].to_numpy()) ** 2), np.mean(np.abs(outputs - held["y"].to_numpy()))
    last = history[-1]["validation"]
    np.testing.assert_allclose((last["loss"], last["all_metrics"][0]["group_0_y"]), expected, rtol=1e-4)
    predicted = fitted.setOutputCols(["z"]).transform(df)
    assert predicted.columns == [*df.columns, "z"]
    assert dict(predicted.dtypes)["z"] == "double"
    rows = predicted.toPandas()
    want = fitted.getModel()(torch.from_numpy(rows[["a", "b"]].to_numpy(np.float32)))[:, 0].detach().numpy()
    np.testing.assert_allclose(rows["z"], want, rtol=1e-6, atol=1e-6)  # float32 in batches of other sizes
    split = estimator(epochs=1, validation=0.25, train_steps_per_epoch=2, validation_steps_per_epoch=1).fit(df)
    assert set(split.getHistory()[0]) == {"epoch", "train", "validation"}


def test_a_run_resumes(by_value: Any, tmp_path: Path) -> None:
    """Two epochs and then two more are four epochs at once."""
    from hpccoll.spark.common.store import Store

    df = table(by_value, 70).cache()
    two = {"store": Store.create(f"file://{tmp_path}"), "run_id": "two", "batch_size": 8}
    estimator(epochs=2, **two).fit(df)
    resumed = estimator(epochs=4, **two).fit(df)
    at_once = estimator(epochs=4, **{**two, "run_id": "one"}).fit(df)
    assert [entry["epoch"] for entry in resumed.getHistory()] == [0, 1, 2, 3]
    np.testing.assert_allclose(numbers(resumed.getModel()), numbers(at_once.getModel()), rtol=1e-6)
    assert resumed.getHistory()[-1]["train"]["loss"] == pytest.approx(at_once.getHistory()[-1]["train"]["loss"])
    nothing_left = estimator(epochs=4, **two).fit(df)
    assert np.array_equal(numbers(nothing_left.getModel()), numbers(resumed.getModel()))
    estimator(epochs=1, store=Store.create(str(tmp_path), save_runs=False), run_id="three").fit(df)
    assert sorted(folder.name for folder in (tmp_path / "runs").iterdir()) == ["one", "two"]


def test_files_of_parquet(by_value: Any, tmp_path: Path) -> None:
    """As `fit` on the same rows, with a column that says which are for validation."""
    from hpccoll.spark.common.store import Store

    df = table(by_value, 80)
    for held, name in ((False, "train"), (True, "val"), (False, "rows.2")):
        df.filter(df.held == held).drop("held").write.parquet(str(tmp_path / name))
    data = {"train_path": str(tmp_path / "train"), "val_path": str(tmp_path / "val")}
    on_files = estimator(epochs=2, store=Store.create(str(tmp_path / "store"), **data)).fit_on_parquet()
    read = [by_value.read.parquet(path).selectExpr("*", f"{path.endswith('val')} as held") for path in data.values()]
    on_rows = estimator(epochs=2, store=Store.create(str(tmp_path / "store")), validation="held").fit(
        read[0].unionByName(read[1])
    )
    np.testing.assert_allclose(numbers(on_files.getModel()), numbers(on_rows.getModel()), rtol=1e-6)
    for one, other in zip(on_files.getHistory(), on_rows.getHistory(), strict=True):
        assert one["validation"]["loss"] == pytest.approx(other["validation"]["loss"])
    alone = Store.create(f"file://{tmp_path}", train_path=f"file://{tmp_path}/rows")
    mine = estimator(store=alone)
    history = mine.fit_on_parquet({mine.epochs: 3}, dataset_idx=2).getHistory()
    assert [set(entry) for entry in history] == [{"epoch", "train"}] * 3
    nowhere = Store.create(str(tmp_path), train_path=data["train_path"], val_path=str(tmp_path / "nowhere"))
    with pytest.raises(Exception, match="nowhere"):
        estimator(store=nowhere).fit_on_parquet()
    with pytest.raises(ValueError, match=r"^TorchEstimator.fit_on_parquet: store is required"):
        estimator().fit_on_parquet()


LOADS = """
import sys, os
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
from pyspark.ml import PipelineModel, Pipeline
df = spark.read.parquet(sys.argv[1] + "/digits")
model = PipelineModel.load(sys.argv[1] + "/model")
estimator = Pipeline.load(sys.argv[1] + "/pipeline").getStages()[-1]
print("EPOCHS", estimator.getEpochs(), type(estimator.getOptimizer()).__name__)
own = {id(p) for p in estimator.getModel().parameters()}
print("SHARED", all(id(p) in own for group in estimator.getOptimizer().param_groups for p in group["params"]))
rows = model.transform(df).select("label", "out").collect()
print("RIGHT", sum(int(row.out.toArray().argmax()) == row.label for row in rows), len(rows))
"""


def test_digits_in_a_pipeline_that_another_process_loads(by_value: Any, tmp_path: Path) -> None:
    """Vectors of an assembler, a loss of classes, and real persistence."""
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import VectorAssembler

    digits = pytest.importorskip("sklearn.datasets").load_digits()
    rows = [(*map(float, image), int(label)) for image, label in zip(digits.data / 16, digits.target, strict=True)]
    names = [f"p{at}" for at in range(64)]
    df = by_value.createDataFrame(rows, [*names, "label"])
    df.write.parquet(str(tmp_path / "digits"))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    own = estimator(model=model, optimizer=torch.optim.Adam(model.parameters(), 0.003), feature_cols=["image"],
                    loss=lambda out, label: torch.nn.functional.cross_entropy(out, label.long()), epochs=12,
                    label_cols=["label"])  # fmt: skip
    pipeline = Pipeline(stages=[VectorAssembler(inputCols=names, outputCol="image"), own])
    fitted = pipeline.fit(df.repartition(4))
    fitted.stages[-1].setOutputCols(["out"])
    fitted.write().overwrite().save(str(tmp_path / "model"))
    pipeline.write().overwrite().save(str(tmp_path / "pipeline"))
    here = fitted.transform(df).select("label", "out").collect()
    right = sum(int(row.out.toArray().argmax()) == row.label for row in here)
    assert right > 0.95 * len(rows)
    other = subprocess.run([sys.executable, "-c", LOADS, str(tmp_path)], capture_output=True, text=True, timeout=600)
    lines = [line.split(" ", 1) for line in other.stdout.splitlines()]
    said = {line[0]: line[1] for line in lines if line[0] in ("EPOCHS", "SHARED", "RIGHT")}
    assert said == {"EPOCHS": "12 Adam", "SHARED": "True", "RIGHT": f"{right} {len(rows)}"}, other.stderr[-3000:]


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 1)

    def forward(self, a: Any, image: Any) -> Any:
        return self.inner(a), image.mean((1, 2, 3))


class Filled(torch.nn.Module):
    """The sum of the inputs, where NaN counts as 100."""

    def forward(self, *inputs: Any) -> Any:
        return sum(torch.nan_to_num(each.reshape(len(each), -1), 100.0).sum(1, keepdim=True) for each in inputs)


def test_nan_is_a_value_in_predictions_and_null_is_none(by_value: Any) -> None:
    """pandas has one sign for both: a row with NaN, with which the training had worked, was one 'without a value'."""
    from pyspark.ml.linalg import Vectors

    from hpccoll.spark.torch import TorchModel

    kinds = {"labels": {"y": "double"}, "widths": {"y": 1}}
    model = TorchModel(model=Filled(), feature_columns=["x", "a", "v"], label_columns=["y"], _metadata=kinds)
    nan, columns = float("nan"), ["x", "a", "v"]
    rows = [(1.0, [2.0, 3.0], Vectors.dense(4.0)), (nan, [nan, 3.0], Vectors.dense(nan))]
    found = model.transform(by_value.createDataFrame(rows, columns)).collect()
    assert [row.y__output for row in found] == [10.0, 303.0]
    for lacking in ((None, [2.0, 3.0]), (1.0, None), (1.0, [None, 3.0])):
        frame = by_value.createDataFrame([(1.0, [2.0, 3.0]), lacking], "x double, a array<double>")
        plain = model.copy()._set(feature_columns=["x", "a"])
        with pytest.raises(Exception, match=r"column [xa] has rows without a value \(null\)"):
            plain.transform(frame).collect()


@pytest.mark.parametrize("shape", [[-1], []], ids=["of all rows", "of one row"])
def test_several_inputs_outputs_and_shapes(by_value: Any, shape: list[int]) -> None:
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import functions

    spark = by_value
    rows = [(Vectors.dense([at, 1.0]), [float(at)] * 4, at, float(at)) for at in range(12)]
    df = spark.createDataFrame(rows, ["v", "image", "n", "m"]).withColumn("n", functions.col("n").cast("int"))
    model = Two()
    own = estimator(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.0), epochs=1, label_cols=["n", "m"],
                    feature_cols=["v", "image"], input_shapes=[[*shape, 2], [*shape, 1, 2, 2]],
                    loss=[torch.nn.MSELoss()], loss_weights=[0.5, 2.0])  # fmt: skip
    fitted = own.fit(df)
    out = fitted.transform(df).orderBy("n").collect()
    assert [row.m__output for row in out] == list(map(float, range(12)))
    assert [type(row.n__output) for row in out] == [int] * 12
    values = model(torch.tensor([[at, 1.0] for at in range(12)]), torch.zeros(12, 1, 2, 2))[0][:, 0]
    want = 0.5 * ((values - torch.arange(12)) ** 2).mean()
    assert fitted.getHistory()[0]["train"]["loss"] == pytest.approx(float(want.detach()), rel=1e-5)


def test_wrong_parameters_are_refused_before_the_job(by_value: Any) -> None:
    from pyspark.sql import functions

    df = table(by_value, 8).withColumn("s", functions.lit("x")).withColumn("v", functions.array("w"))
    other, _ = linear()
    lock = __import__("threading").Lock()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"feature_cols": ["a", "c"]}, "there is no column c; the DataFrame has a, b, y, w, held, s, v"),
        ({"label_cols": ["a"]}, "column a is a label and a feature"),
        ({"feature_cols": ["a", "s"]}, "column s is of type string, which is no number"),
        ({"validation": "x"}, "there is no column x"),
        ({"validation": 1.5}, "validation is 1.5: a fraction"),
        ({"sample_weight_col": "v"}, "column v is of type array<double>: a weight or a mark is one number"),
        ({"validation": "v"}, "column v is of type array<double>: a weight or a mark is one number"),
        ({"batch_size": 0}, "batch_size is 0; it is at least 1"),
        ({"val_batch_size": -5}, "val_batch_size is -5; it is at least 1"),
        ({"train_steps_per_epoch": 0}, "train_steps_per_epoch is 0; it is at least 1"),
        ({"validation_steps_per_epoch": 0}, "validation_steps_per_epoch is 0; it is at least 1"),
        ({"shuffle_buffer_size": -1}, "shuffle_buffer_size is -1; it is at least 0"),
        ({"random_seed": -1}, "random_seed is -1; it is at least 0"),
        ({"train_reader_num_workers": 3}, r"TorchEstimator\(train_reader_num_workers=\): there is no Petastorm"),
        ({"epoch": 3}, "has no parameter epoch"),
        ({"model": other}, "the optimizer has parameters that the model has not"),
        ({"loss": None}, "give loss or loss_constructors"),
        ({"transformation_fn": lambda row: lock}, "transformation_fn cannot be pickled: .*lock"),
        ({"loss_weights": [1.0, 2.0]}, "there are 2 loss_weights for 1 labels: give one, or one per label"),
        ({"metrics": [[torch.nn.functional.l1_loss] * 2]}, "there are 2 metrics for 1 labels"),
        ({"input_shapes": [[-1, 1]] * 3}, "the model has 3 inputs, and there are 2 columns"),
    ]
    for parameters, text in wrong:
        with pytest.raises(hpccoll.InvalidArgumentError, match=text):
            own = estimator(**{name: value for name, value in parameters.items() if name != "loss"})
            own.setLoss(None) if "loss" in parameters else None
            own.fit(df)


def test_more_ranks_than_slots(by_value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpccoll.spark import driver
    from hpccoll.tools.launch.job import LaunchError

    monkeypatch.setattr(driver, "REGISTERING", 0.5)
    with pytest.raises(LaunchError, match="TorchEstimator: 9 ranks need 9 slots at once, and Spark has 4"):
        estimator(num_proc=9).fit(table(by_value, 8))


def kills(model: Any, *arguments: Any) -> Any:
    import os
    import signal

    if hpccoll.rank() == 1:
        parent = os.getppid()
        while "java" not in Path(f"/proc/{parent}/comm").read_text():
            parent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
    hpccoll.allreduce(np.ones(1))


def test_an_executor_that_is_killed_is_named(by_value: Any) -> None:
    from hpccoll.tools.launch.job import LaunchError

    with pytest.raises(LaunchError, match=r"TorchEstimator: Spark has not run the 4 ranks to their end.*xecutor"):
        estimator(num_proc=4, train_minibatch_fn=kills).fit(table(by_value, 40))


def watches(model: Any, optimizer: Any, transform: Any, loss_fn: Any, inputs: Any, labels: Any, weights: Any) -> Any:
    """The outputs are the label, and the memory of this process in MiB that is no mapped file."""
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("RssAnon"))
    return labels, torch.tensor(float(line.split()[1]) / 1024)


def test_a_million_rows_in_bounded_memory(by_value: Any) -> None:
    """The rows of a rank take 122 MiB; its memory grows by less than half of that, on average over the epoch."""
    from pyspark.sql import functions

    values = functions.array_repeat(functions.col("id").cast("float"), 64).alias("x"), functions.lit(0.0).alias("y")
    means = []
    for rows in (2000, 1_000_000):
        model = torch.nn.Linear(64, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        own = estimator(model=model, optimizer=optimizer, feature_cols=["x"], batch_size=4000,
                        scale_learning_rate=False, shuffle_buffer_size=20000, train_minibatch_fn=watches)  # fmt: skip
        fitted = own.fit(by_value.range(rows).select(*values))
        means.append(fitted.getHistory()[0]["train"]["loss"])
    assert means[1] - means[0] < 61, means


def test_copies_and_accessors() -> None:
    own = estimator()
    assert own.getNumProc() == 2
    assert own.copy({own.epochs: 5}).getEpochs() == 5 != own.getEpochs()
    assert own.setShufflingBufferSize(10).getShufflingBufferSize() == 10
    model, optimizer = copy.deepcopy((own.getModel(), own.getOptimizer()))
    assert own.setModel(model).setOptimizer(optimizer).getModel() is model

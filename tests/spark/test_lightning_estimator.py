# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator for Lightning on a real cluster, beside one process that trains on the same rows."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spark_tables import table

import hpccoll

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'hpccoll[torch]'")
pl = pytest.importorskip("lightning.pytorch", reason="no Lightning: pip install lightning")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]

RATE, MOMENTUM = 0.05, 0.9


class Linear(pl.LightningModule):
    """Writes the rows of each step into a file of its rank, if there is a folder."""

    def __init__(self, folder: str = "", rate: float = RATE, gamma: float = 1.0) -> None:
        super().__init__()
        self.save_hyperparameters()
        torch.manual_seed(3)
        self.inner = torch.nn.Linear(2, 1)

    def forward(self, x: Any) -> Any:
        return self.inner(x)

    def loss(self, batch: Any) -> Any:
        out = self(torch.stack([batch["a"], batch["b"]], 1))[:, 0]
        return ((out - batch["y"]) ** 2 * batch.get("w", 1.0)).mean()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.hparams.folder and "w" in batch:
            step = np.stack([batch[name].numpy() for name in "abyw"], 1)
            place = f"{self.current_epoch:03}-{batch_idx:03}-{self.trainer.global_rank}.npy"
            np.save(Path(self.hparams.folder, place), step)
        loss = self.loss(batch)
        self.log("loss", loss, on_epoch=True, on_step=False, batch_size=len(batch["y"]))
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss = self.loss(batch)
        if self.hparams.folder:
            with Path(self.hparams.folder, f"held{self.trainer.global_rank}-{self.current_epoch}").open("a") as file:
                file.write(f"{float(loss)} {len(batch['y'])}\n")
        self.log("val_loss", loss, batch_size=len(batch["y"]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.rate, momentum=MOMENTUM)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, self.hparams.gamma)]


class NoForward(pl.LightningModule):
    pass


def estimator(**parameters: Any) -> Any:
    from hpccoll.spark.lightning import TorchEstimator

    default = {"model": Linear(), "random_seed": 7, "feature_cols": ["a", "b"], "label_cols": ["y"], "num_proc": 2,
               "verbose": 0}  # fmt: skip
    return TorchEstimator(**default | parameters)


def numbers(model: Any) -> Any:
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in model.parameters()])


@pytest.mark.parametrize(("rows", "ranks", "passes"), [(96, 2, 1), (101, 3, 1), (101, 2, 2)])
def test_the_weights_are_those_of_one_process(
    by_value: Any, tmp_path: Path, rows: int, ranks: int, passes: int
) -> None:
    """One process makes the same steps, each with the rows of all ranks at once, in float64."""
    own = estimator(model=Linear(str(tmp_path), gamma=0.5), num_proc=ranks, epochs=3, batch_size=8,
                    sample_weight_col="w", backward_passes_per_step=passes)  # fmt: skip
    before = numbers(own.getModel())
    fitted = own.fit(table(by_value, rows))
    model = Linear().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=ranks * RATE, momentum=MOMENTUM)  # Horovod's rule for the rate
    for epoch in range(3):
        seen = []
        for step in sorted({path.name[:7] for path in tmp_path.glob(f"{epoch:03}-*.npy")}):
            found = np.concatenate([np.load(tmp_path / f"{step}-{rank}.npy") for rank in range(ranks)])
            a, b, y, w = torch.from_numpy(found.astype(np.float64)).T
            (model.loss({"a": a, "b": b, "y": y, "w": w}) / passes).backward()
            seen.append(found[:, 0])
            if len(seen) % passes == 0:
                optimizer.step()
                optimizer.zero_grad()
        assert len(np.unique(np.concatenate(seen))) == len(np.concatenate(seen)) == rows
        optimizer.param_groups[0]["lr"] *= 0.5
    np.testing.assert_allclose(numbers(fitted.getModel()), numbers(model), rtol=2e-5)
    assert np.array_equal(before, numbers(own.getModel()))  # fit() leaves the estimator's model


class Stops(pl.Callback):
    """Ends the training in epoch 2 on all ranks, because one of them says so."""

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        stop = trainer.current_epoch == 2 and trainer.global_rank == 1
        trainer.should_stop = trainer.strategy.reduce_boolean_decision(stop, all=False)


def mean_of(found: Any) -> Any:
    return np.average(found[:, 0], weights=found[:, 1])


def test_validation_callbacks_history_and_predictions(by_value: Any, tmp_path: Path) -> None:
    """Each row is validated once, in as many batches on all ranks; the history has means of the ranks' means."""
    df = table(by_value, 83)
    model = Linear(str(tmp_path))
    fitted = estimator(model=model, epochs=9, batch_size=5, validation="held", callbacks=[Stops()]).fit(df)
    history = fitted.getHistory()
    assert [entry["epoch"] for entry in history] == [0, 1, 2]
    assert set(history[0]) == {"epoch", "loss", "val_loss"}
    found = [np.loadtxt(tmp_path / f"held{rank}-2", ndmin=2) for rank in range(2)]
    assert len(found[0]) == len(found[1])
    np.testing.assert_allclose(history[2]["val_loss"], np.mean([mean_of(own) for own in found]), rtol=1e-5)
    held = df.where("held").toPandas()
    outputs = fitted.getModel()(torch.from_numpy(held[["a", "b"]].to_numpy(np.float32)))[:, 0].detach().numpy()
    expected = np.mean((outputs - held["y"].to_numpy()) ** 2)
    np.testing.assert_allclose(mean_of(np.concatenate(found)), expected, rtol=1e-4)
    rows = fitted.setOutputCols(["z"]).transform(df).toPandas()
    want = fitted.getModel()(torch.from_numpy(rows[["a", "b"]].to_numpy(np.float32)))[:, 0].detach().numpy()
    np.testing.assert_allclose(rows["z"], want, rtol=1e-6, atol=1e-6)  # float32 in batches of other sizes


class Late(Linear):
    """Logs at the end of an epoch, on rank 0 alone, and not in each epoch; a part of it is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.normal = torch.nn.BatchNorm1d(2).eval()

    def forward(self, x: Any) -> Any:
        return super().forward(self.normal(x))

    def on_train_epoch_end(self) -> None:
        self.log("late", 10.0 * self.current_epoch)
        if self.current_epoch == 1:
            self.log("once", 1.0)
        if self.trainer.is_global_zero:
            self.log("zero", 7.0 + self.current_epoch, rank_zero_only=True)


@pytest.fixture(scope="module")
def late(spark: Any) -> Any:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    arguments = {"check_val_every_n_epoch": 2, "enable_checkpointing": False}
    own = estimator(model=Late(), epochs=4, batch_size=5, validation="held", trainer_args=arguments)
    yield own.fit(table(spark, 40))
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_the_history_has_what_an_epoch_has_logged_and_no_more(late: Any) -> None:
    """It lacked what the module logs at the end of an epoch, and repeated it, or a validation, in later epochs."""
    history = late.getHistory()
    assert [set(entry) - {"epoch", "loss", "late", "zero"} for entry in history] == [
        set(), {"val_loss", "once"}, set(), {"val_loss"}
    ]  # fmt: skip
    assert [(entry["late"], entry["zero"]) for entry in history] == [(10.0 * at, 7.0 + at) for at in range(4)]


def test_a_frozen_part_of_a_module_stays_frozen(late: Any) -> None:
    """Lightning keeps the modes of parts of a module; here all were in the mode of training."""
    normal = late.getModel().normal
    assert normal.num_batches_tracked == 0 and torch.equal(normal.running_mean, torch.zeros(2))


def test_a_run_resumes(by_value: Any, tmp_path: Path) -> None:
    """Two epochs and then two more are four epochs at once, with the optimizer's and the schedule's state."""
    from hpccoll.spark.common.store import Store

    df = table(by_value, 70).cache()
    two = {"store": Store.create(f"file://{tmp_path}"), "run_id": "two", "batch_size": 8}
    estimator(model=Linear(gamma=0.7), epochs=2, **two).fit(df)
    resumed = estimator(model=Linear(gamma=0.7), epochs=4, **two).fit(df)
    at_once = estimator(model=Linear(gamma=0.7), epochs=4, **{**two, "run_id": "one"}).fit(df)
    assert [entry["epoch"] for entry in resumed.getHistory()] == [0, 1, 2, 3]
    np.testing.assert_allclose(numbers(resumed.getModel()), numbers(at_once.getModel()), rtol=1e-6)
    nothing_left = estimator(epochs=4, **two).fit(df)
    assert np.array_equal(numbers(nothing_left.getModel()), numbers(resumed.getModel()))
    assert len(nothing_left.getHistory()) == 4


LOADS = """
import sys, os
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
from hpccoll.spark.lightning import TorchEstimator, TorchModel
estimator = TorchEstimator.load(sys.argv[1] + "/estimator")
print("EPOCHS", estimator.getEpochs(), type(estimator.getModel()).__name__)
df = spark.read.parquet(sys.argv[1] + "/digits")
rows = TorchModel.load(sys.argv[1] + "/model").transform(df).select("label", "label__output").collect()
print("RIGHT", sum(int(row.label__output.toArray().argmax()) == row.label for row in rows), len(rows))
"""


class Digits(pl.LightningModule):
    """In the shape of Horovod's example: images and labels by their columns' names."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = torch.nn.Conv2d(1, 8, 3)
        self.dense = torch.nn.Linear(288, 10)

    def forward(self, x: Any) -> Any:
        return self.dense(torch.relu(self.convolution(x)).flatten(1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return torch.nn.functional.cross_entropy(self(batch["image"]), batch["label"].long())

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), 0.002)


def test_digits_and_what_another_process_loads(by_value: Any, tmp_path: Path) -> None:
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    rows = list(zip((digits.data / 16).tolist(), digits.target.tolist(), strict=True))
    df = by_value.createDataFrame(rows, ["image", "label"]).repartition(4)
    df.write.parquet(str(tmp_path / "digits"))
    own = estimator(model=Digits(), feature_cols=["image"], label_cols=["label"], epochs=8,
                    input_shapes=[[-1, 1, 8, 8]])  # fmt: skip
    fitted = own.fit(df)
    own.save(str(tmp_path / "estimator"))
    fitted.save(str(tmp_path / "model"))
    here = fitted.transform(df).select("label", "label__output").collect()
    right = sum(int(row.label__output.toArray().argmax()) == row.label for row in here)
    assert right > 0.95 * len(rows)
    other = subprocess.run([sys.executable, "-c", LOADS, str(tmp_path)], capture_output=True, text=True, timeout=600)
    said = dict(line.split(" ", 1) for line in other.stdout.splitlines() if line.startswith(("EPOCHS", "RIGHT")))
    assert said == {"EPOCHS": "8 Digits", "RIGHT": f"{right} {len(rows)}"}, other.stderr[-3000:]


def test_wrong_parameters_are_refused_before_the_job(by_value: Any) -> None:
    df = table(by_value, 8)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"model": torch.nn.Linear(2, 1)}, "no LightningModule but a Linear, for which hpccoll.spark.torch"),
        ({"model": NoForward()}, r"NoForward has no forward\(\)"),
        ({"optimizer": 1}, r"TorchEstimator\(optimizer=\): the LightningModule makes it in configure_optimizers"),
        ({"loader_num_epochs": 3}, "there is no Petastorm"),
        ({"trainer_args": {"max_epochs": 3}}, "trainer_args has max_epochs, which the estimator sets"),
        ({"epoch": 3}, "has no parameter epoch"),
        ({"validation": "x"}, "there is no column x"),
    ]
    for parameters, text in wrong:
        with pytest.raises(hpccoll.InvalidArgumentError, match=text):
            estimator(**parameters).fit(df)

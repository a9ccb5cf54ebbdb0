# SPDX-License-Identifier: Apache-2.0
"""The parameters of the estimators, under Horovod's names; tables without Spark, so that the docs are drawn from them.

A parameter of Horovod's that makes no sense here is refused by its name, with a sentence.
"""

from typing import Any, NamedTuple

from hpccoll.errors import InvalidArgumentError

__all__ = ["KERAS", "LIGHTNING", "OF_THE_MODULE", "REFUSED", "SHARED", "TORCH", "Parameter", "accessor", "check_names"]


class Parameter(NamedTuple):
    """A parameter of an estimator."""

    name: str
    default: Any
    doc: str
    kind: str = "any"
    """Its type, as one of pyspark.ml.param.TypeConverters: int, bool, str, names, floats, any."""


SHARED = (
    Parameter("num_proc", None, "how many ranks; `spark.default.parallelism`", "int"),
    Parameter("backend", None, "a `SparkBackend`, in place of `num_proc`: it also has `env` and `nics`"),
    Parameter("model", None, "the model; the estimator does not change it"),
    Parameter("optimizer", None, "its optimizer"),
    Parameter("loss", None, "a loss, or one per label; each as `loss(output, label)`"),
    Parameter("loss_weights", None, "one number per label; 1 / their number each (torch), 1 each (Keras)", "floats"),
    Parameter("metrics", [], "functions or names; the history has them"),
    Parameter("feature_cols", None, "the columns of the model's inputs", "names"),
    Parameter("label_cols", None, "the columns of the labels, one per output of the model", "names"),
    Parameter("sample_weight_col", None, "a column of weights: the mean of weight * loss is minimized", "str"),
    Parameter("validation", None, "a fraction of the rows, chosen at random, or a column that is true for these rows"),
    Parameter("batch_size", 32, "rows per rank and step, at most", "int"),
    Parameter("val_batch_size", None, "the same in validation; `batch_size`", "int"),
    Parameter("epochs", 1, "how many epochs", "int"),
    Parameter("train_steps_per_epoch", None, "steps of an epoch; as many as use each row once", "int"),
    Parameter("validation_steps_per_epoch", None, "steps of each validation, at most; all rows", "int"),
    Parameter("shuffle", True, "whether each epoch has its own order of rows", "bool"),
    Parameter("shuffle_buffer_size", None, "rows that are shuffled with each other, at most; 65536. 0: none", "int"),
    Parameter("random_seed", None, "of the shuffling, the split and the framework; drawn for each fit", "int"),
    Parameter("transformation_fn", None, "called with each row, a dict of NumPy values by column; returns such a dict"),
    Parameter("gradient_compression", None, "the type of gradients between ranks, as `hvd.Compression.fp16`"),
    Parameter("scale_learning_rate", True, "multiply the rate by the number of ranks, as Horovod does", "bool"),
    Parameter("backward_passes_per_step", 1, "passes whose gradients are added up before a step", "int"),
    Parameter("label_shapes", None, "the shapes of the labels, as [[-1, 10]]"),
    Parameter("store", None, "a `Store` for rows, as Parquet, and checkpoints; rows go to local files of the ranks"),
    Parameter("run_id", None, "the name of the run; with a `store`, a run of this name resumes", "str"),
    Parameter(
        "use_gpu", True, "use the GPU of the rank, if it has one (torch), those that Keras finds (Keras)", "bool"
    ),
    Parameter("inmemory_cache_all", False, "no effect: mapped files stay in memory while there is enough", "bool"),
    Parameter("verbose", 1, "rank 0 prints a line per epoch (torch); as in `fit` (Keras)", "int"),
)
TORCH = (
    Parameter("input_shapes", None, "the shapes of the model's inputs, as [[-1, 1, 28, 28]]; as the columns are"),
    Parameter("loss_constructors", None, "functions without arguments that make the losses on the rank"),
    Parameter("train_minibatch_fn", None, "a step of training, in place of forward, backward and step"),
)
KERAS = (
    Parameter("callbacks", [], "callbacks of Keras for `fit`; they are copied to all ranks"),
    Parameter("custom_objects", {}, "classes and functions that Keras does not know, by name"),
    Parameter("backend_env", None, "variables to set in the ranks"),
)
OF_THE_MODULE = {
    "optimizer": "the LightningModule makes it in configure_optimizers()",
    "loss": "the LightningModule computes it in training_step()",
    "loss_weights": "the LightningModule weighs its losses in training_step()",
    "loss_constructors": "the LightningModule makes its losses",
    "metrics": "the LightningModule logs them, as self.log(name, value)",
    "train_minibatch_fn": "the LightningModule has training_step()",
    "gradient_compression": "DDP reduces the gradients in their own type",
    "num_gpus": "each rank has one GPU, if use_gpu is true and there is one",
    "profiler": "give it in trainer_args",
    "log_every_n_steps": "give it in trainer_args",
    "terminate_on_nan": "give detect_anomaly in trainer_args",
}
"""Each parameter of other estimators, or of Horovod's, that the estimator for Lightning has not; as REFUSED."""
LIGHTNING = (
    *(one for one in SHARED if one.name not in OF_THE_MODULE),
    Parameter("input_shapes", None, "the shapes of the columns of features, as [[-1, 1, 28, 28]]; as they are"),
    Parameter("callbacks", [], "callbacks of Lightning; they are copied to all ranks"),
    Parameter("logger", None, "a logger of Lightning; none"),
    Parameter("trainer_args", {}, "further arguments of Lightning's Trainer"),
)

_READERS = "there is no Petastorm: a rank maps its rows into memory, and needs no readers"
_PLAIN = (
    "give an estimator of hpccoll.spark.torch or .keras columns, or read the rows in hpccoll.spark.run_on_dataframe"
)
REFUSED = {
    "train_reader_num_workers": _READERS,
    "val_reader_num_workers": _READERS,
    "reader_pool_type": _READERS,
    "tensorflow_dataset_prefetch_buffer_size": _READERS,
    "train_async_data_loader_queue_size": _READERS,
    "val_async_data_loader_queue_size": _READERS,
    "loader_num_epochs": _READERS,
    "debug_data_loader": _READERS,
    "partitions_per_process": "each rank gets about equally many rows, whatever the partitions are",
    "compress_sparse_cols": "sparse vectors become dense where Spark hands them to Arrow",
    "transformation_edit_fields": "the arrays that transformation_fn returns have their own types and shapes",
    "transformation_removed_fields": "transformation_fn leaves out what it does not return",
    "mp_start_method": "ranks start no processes of multiprocessing",
    "checkpoint_callback": "give the estimator a store: it saves the state of model and optimizer after each epoch",
    "data_module": _PLAIN,
    "continuous_cols": _PLAIN,
    "categorical_cols": _PLAIN,
}
"""Each parameter of Horovod's that is not there, and the sentence of its error."""

_ACCESSORS = {"shuffle_buffer_size": "ShufflingBufferSize", "inmemory_cache_all": "InMemoryCacheAll"}


def accessor(name: str) -> str:
    """Return what follows `set` and `get` in the names of a parameter's methods, as Horovod has them."""
    return _ACCESSORS.get(name) or name.title().replace("_", "")


def check_names(what: str, given: dict[str, Any], known: tuple[Parameter, ...], refused: dict[str, str]) -> None:
    """Check the names of an estimator's arguments.

    :param refused: names that this estimator refuses beside REFUSED
    :raises InvalidArgumentError: (a ValueError) one is not there, or only Horovod has it
    """
    refused = REFUSED | refused
    for name in given:
        if name in refused and given[name] is not None:
            raise InvalidArgumentError(f"{what}({name}=): {refused[name]}")
        if name not in refused and name not in {parameter.name for parameter in known}:
            raise InvalidArgumentError(f"{what} has no parameter {name}")

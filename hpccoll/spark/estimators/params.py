# SPDX-License-Identifier: Apache-2.0
"""Parameters of Spark ML from the tables of hpccoll.spark.estimators.parameters, and what saves and loads them.

A model and its optimizer share tensors, so all parameters are pickled at once, into the metadata that Spark ML saves.
"""

import base64
import pickle
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pyspark import cloudpickle
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

from hpccoll.errors import InvalidArgumentError
from hpccoll.spark.estimators.parameters import Parameter, accessor

__all__ = ["Saved", "parameterized", "pickled"]

CONVERTERS: dict[str, Any] = {
    "int": TypeConverters.toInt,
    "bool": TypeConverters.toBoolean,
    "str": TypeConverters.toString,
    "names": TypeConverters.toListString,
    "floats": TypeConverters.toListFloat,
    "any": TypeConverters.identity,
}
NOT_SAVED = ("backend", "store")
"""They belong to a machine; Horovod does not save them either."""
C = TypeVar("C", bound=type)


def parameterized(table: Iterable[Parameter]) -> Callable[[C], C]:
    """Give a class a Param of each parameter, with the methods setX and getX."""

    def decorate(cls: C) -> C:
        for one in table:
            setattr(cls, one.name, Param(Params._dummy(), one.name, one.doc, CONVERTERS[one.kind]))  # noqa: SLF001
            _add_methods(cls, one)
        return cls

    return decorate


def _add_methods(cls: type, one: Parameter) -> None:
    def set_it(self: Any, value: Any) -> Any:
        return self._set(**{one.name: value})

    def get_it(self: Any) -> Any:
        return self.getOrDefault(one.name)

    set_it.__doc__ = f"Set {one.name}: {one.doc}."
    get_it.__doc__ = f"Return {one.name}: {one.doc}."
    for kind, method in (("set", set_it), ("get", get_it)):
        method.__name__ = kind + accessor(one.name)
        method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
        if method.__name__ not in vars(cls):
            setattr(cls, method.__name__, method)


def pickled(what: str, values: dict[str, Any]) -> bytes:
    """Pickle values by name.

    :param what: the object that has them, for errors
    :raises InvalidArgumentError: names the one that cannot be pickled
    """
    try:
        return bytes(cloudpickle.dumps(values))
    except Exception:
        for name, value in values.items():
            try:
                cloudpickle.dumps(value)
            except Exception as error:
                text = f"{what}: {name} cannot be pickled: {type(error).__name__}: {error}"
                raise InvalidArgumentError(text) from error
        raise


class _Writer(MLWriter):
    def __init__(self, instance: Any) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:  # noqa: N802 - Spark's name
        """Save the parameters."""
        given = {param.name: value for param, value in self._instance._paramMap.items()}  # noqa: SLF001
        data = pickled(type(self._instance).__name__, {name: given[name] for name in given if name not in NOT_SAVED})
        extra = {"pickled": base64.b64encode(data).decode()}
        DefaultParamsWriter.saveMetadata(self._instance, path, self.sc, extra, {})


class _Reader(MLReader):
    def __init__(self, cls: type) -> None:
        super().__init__()
        self._cls = cls

    def load(self, path: str) -> Any:
        """Load an instance."""
        metadata = DefaultParamsReader.loadMetadata(path, self.sc)
        instance = self._cls()
        instance._resetUid(metadata["uid"])  # noqa: SLF001
        return instance._set(**pickle.loads(base64.b64decode(metadata["pickled"])))  # noqa: SLF001


class Saved(MLWritable, MLReadable):
    """What save(), write(), load() and read() need. To load is to unpickle: load only what you trust."""

    def write(self) -> MLWriter:
        """Return what saves this object."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader:
        """Return what loads an object of this class."""
        return _Reader(cls)

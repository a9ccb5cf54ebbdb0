# SPDX-License-Identifier: Apache-2.0
"""Horovod's modules under their names: there, or an import error that says what to use instead."""

import importlib
import importlib.machinery
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hpccoll.torch as hvd
from hpccoll.not_there import INSTEAD, NAMES, PAGE, Finder

sys.path.insert(0, str(Path(__file__).parents[1]))
import horovod_names

ROOT = Path(__file__).resolve().parents[2]
MODULES = [name for name in horovod_names.NAMES if name.startswith("torch.")]
IN_JOBS = ("hpccoll.tensorflow.", "hpccoll.mxnet.")  # with tests/tensorflow and tests/mxnet
MISSING = [
    *(name for name in INSTEAD if not name.startswith(IN_JOBS)), "hpccoll._keras.callbacks", "hpccoll.common.util",
    "hpccoll.common.exceptions", "hpccoll.spark.data_loaders.pytorch_data_loaders",
]  # fmt: skip


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_an_attribute_with_the_same_names(module: str) -> None:
    imported = importlib.import_module(f"hpccoll.{module}")
    assert getattr(hvd, module.removeprefix("torch.")) is imported
    there = [name for name in horovod_names.NAMES[module].split() if name in vars(imported)]
    assert there
    assert all(getattr(imported, name) is getattr(hvd, name, getattr(imported, name)) for name in there)


@pytest.mark.parametrize("module", MISSING)
def test_a_missing_module_is_an_import_error_with_a_sentence(module: str) -> None:
    with pytest.raises(ImportError, match="is not there: ") as raised:
        importlib.import_module(module)
    top = next(name for name in INSTEAD if f"{module}.".startswith(f"{name}."))
    assert not isinstance(raised.value, ModuleNotFoundError)
    assert str(raised.value) == f"{top} is not there: {INSTEAD[top]}. See {PAGE} of hpccoll"


def test_only_imports_that_would_fail_ask_for_these_modules() -> None:
    """Every import of a process asks the finders in their order, until one of them has found the module."""
    assert sys.meta_path.index(Finder) > sys.meta_path.index(importlib.machinery.PathFinder)
    assert [Finder.find_spec(name) for name in ("common", "horovod.common", "hpccoll", "hpccoll.commons")] == [None] * 4
    files = [ROOT / name.replace(".", "/") for name in INSTEAD]
    assert not [file for file in files if file.with_suffix(".py").exists() or (file / "__init__.py").exists()]


WITHOUT_FRAMEWORKS = """
import importlib, sys
for framework in sys.argv[1:]:
    sys.modules[framework] = None  # as if it were not installed
    try:
        importlib.import_module(f"hpccoll.{framework}")
    except ImportError as error:
        print(error)
"""


def test_a_missing_framework_is_an_import_error_that_says_how_to_get_it() -> None:
    frameworks = ["torch", "tensorflow", "keras", "jax", "mxnet", "ray"]
    command = [sys.executable, "-c", WITHOUT_FRAMEWORKS, *frameworks]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.splitlines()
    assert len(said) == len(frameworks)
    for framework, sentence in zip(frameworks, said, strict=True):
        assert sentence.startswith(f"hpccoll.{framework} needs ")
        assert ": pip install '" in sentence


def test_the_page_has_all_of_them() -> None:
    page = (ROOT / PAGE).read_text()
    assert [name for name in INSTEAD if f"`{name}`" not in page] == []


@pytest.mark.parametrize("module", ["", "data", "data.data_loader_base", "spark.common.store", "torch", *MODULES])
def test_all_names_of_horovods_are_there_or_say_what_to_use(module: str) -> None:
    """tests/tensorflow, tests/keras and tests/mxnet do so for their front ends."""
    assert horovod_names.missing(importlib.import_module(f"hpccoll.{module}".strip(".")), module) == []


def test_a_name_of_nobody_is_a_plain_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'hpccoll.torch' has no attribute 'allreduse'$"):
        _ = hvd.allreduse


def test_no_sentence_is_about_a_name_that_is_there() -> None:
    assert [name for name in NAMES["hpccoll.torch"] if name in vars(hvd)] == []


def test_a_compressor_derived_from_horovods_is_asked() -> None:
    """Its base class knows a conversion of the library's own, which must not stand in for the derived methods."""
    asked = []

    class Mine(hvd.compression.FP16Compressor):
        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
            asked.append(tensor)
            return tensor, None

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: None) -> torch.Tensor:
            return tensor

    hvd.init()
    try:
        assert hvd.allreduce(torch.tensor([1 + 2**-20]), compression=Mine).item() == 1 + 2**-20
        assert len(asked) == 1
    finally:
        hvd.shutdown()

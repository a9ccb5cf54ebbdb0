# SPDX-License-Identifier: Apache-2.0
"""Our prototypes of the driver's functions beside those of CUDA's own header, by what a call passes."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADERS = {"11.8": "nvidia-cuda-runtime-cu11==11.8.89", "12.9": "nvidia-cuda-runtime-cu12==12.9.79"}
WIDTHS = {
    "CUdeviceptr": "64 bits", "CUdeviceptr_v2": "64 bits", "hc_gpu_address": "64 bits", "size_t": "size",
    "int": "32 bits", "unsigned": "32 bits", "CUdevice": "32 bits", "CUdevice_v1": "32 bits", "CUresult": "32 bits",
    "CUpointer_attribute": "32 bits", "char": "8 bits",
}  # fmt: skip
NUMBERS = {
    "HC_POINTER_MEMORY": "CU_POINTER_ATTRIBUTE_MEMORY_TYPE", "HC_POINTER_MANAGED": "CU_POINTER_ATTRIBUTE_IS_MANAGED",
    "HC_POINTER_DEVICE": "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL", "HC_MEMORY_OF_DEVICE": "CU_MEMORYTYPE_DEVICE",
}  # fmt: skip
DRIVER = (ROOT / "ext" / "cuda" / "driver" / "driver.h").read_text()


def passed(argument: str) -> str:
    """A pointer (also a handle), or how wide a number is."""
    kind = re.sub(r"\bconst\b", "", argument).split()[0]
    handles = r"CU(context|stream|event|module|function)|hc_gpu_(context|stream|event|module|function)"
    return "pointer" if "*" in argument or re.fullmatch(handles, kind) else WIDTHS[kind]


def shape(arguments: str) -> list[str]:
    return [passed(a) for a in arguments.split(",") if a.strip() not in ("", "void")]


def table() -> dict[str, list[str]]:
    """Each function of driver.h that is CUDA's, by its symbol."""
    rows = re.findall(r'X\(\w+, "(cu\w+)",\s+\((.*?)\)\)', DRIVER.replace("\\\n", " "))
    return {symbol: shape(arguments) for symbol, arguments in rows}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", HEADERS)
def test_the_table_calls_as_the_header_says(version: str, packages: Callable[..., Path]) -> None:
    header = (packages(HEADERS[version]) / "nvidia/cuda_runtime/include/cuda.h").read_text()
    found = re.findall(r"CUDAAPI\s+(cu\w+)\s*\(([^;]*?)\);", header, re.DOTALL)
    theirs = dict(reversed(found))  # the first of a name: at the end stand the ancient ones, of 32 bits
    ours = table()
    assert len(ours) == 34
    for symbol, arguments in ours.items():
        plain = symbol.removesuffix("_v2")
        newer = re.search(rf"#\s*define {plain}\s+(?:__CUDA_API_\w+\()?({plain}_v\d)", header)
        assert symbol == (newer[1] if newer else plain)
        assert arguments == shape(theirs[plain]), symbol
    for ours_is, theirs_is in NUMBERS.items():
        number = re.search(rf"#define {ours_is} (\d+)", DRIVER)
        value = re.search(rf"{theirs_is}\s*= (\w+)", header)  # the enum stands before the texts
        assert number and value and int(number[1]) == int(value[1], 0), theirs_is

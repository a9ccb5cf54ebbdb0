# SPDX-License-Identifier: Apache-2.0
"""Our declarations of TensorFlow's C interface against the headers that TensorFlow brings."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOUND = importlib.util.find_spec("tensorflow")
INCLUDE = Path(FOUND.origin).parent / "include" if FOUND and FOUND.origin else Path("nowhere")
pytestmark = [
    pytest.mark.slow,  # tests/system_matrix.py has an environment with TensorFlow
    pytest.mark.skipif(
        not (INCLUDE / "tensorflow/c/kernels.h").exists(),
        reason="needs TensorFlow and its headers: pip install 'hpccoll[tensorflow]'",
    ),
]

TYPES = "FLOAT DOUBLE INT32 UINT8 INT16 INT8 COMPLEX64 INT64 BOOL BFLOAT16 UINT16 COMPLEX128 HALF UINT32 UINT64"
CODES = {  # of hc_gate_code()
    "TF_OK": 0,
    "TF_INVALID_ARGUMENT": 3,
    "TF_RESOURCE_EXHAUSTED": 8,
    "TF_FAILED_PRECONDITION": 9,
    "TF_INTERNAL": 13,
    "TF_UNAVAILABLE": 14,
}
PROGRAM = """
#include <stdbool.h>
#include <stddef.h>
/* ops.h is C++ in these. */
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_DimensionHandle TF_DimensionHandle;
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"
#define TF_Status TSL_Status /* what TensorFlow calls the struct */
#define TF_Code hc_code
#define TF_DataType hc_datatype
#define TF_StringView hc_stringview
#include "tensorflow/capi.h"
#undef TF_Status
#undef TF_Code
#undef TF_DataType
#undef TF_StringView
/* From here on the list of functions has TensorFlow's own types. */
_Static_assert(sizeof(hc_code) == sizeof(TF_Code) && sizeof(hc_datatype) == sizeof(TF_DataType), "enums");
_Static_assert(sizeof(hc_stringview) == sizeof(TF_StringView) &&
    offsetof(hc_stringview, len) == offsetof(TF_StringView, len), "TF_StringView");
#define X(result, name, arguments) _Static_assert(_Generic(&name, result(*) arguments: 1, default: 0), #name);
HC_TF_FUNCTIONS(X)
_Static_assert(HC_TF_UNIMPLEMENTED == (int)TF_UNIMPLEMENTED, "TF_UNIMPLEMENTED");
"""


def program() -> str:
    lines = [PROGRAM]
    lines += [f'_Static_assert(HC_TF_{name} == (int)TF_{name}, "TF_{name}");' for name in TYPES.split()]
    lines += [f'_Static_assert({code} == (int){name}, "{name}");' for name, code in CODES.items()]
    return "\n".join(lines) + "\n"


def compiled(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    source = folder / "declarations.c"
    source.write_text(text)
    command = ["gcc", "-std=c11", "-fsyntax-only", f"-I{INCLUDE}", f"-I{ROOT / 'ext'}", str(source)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_declarations_are_tensorflows(tmp_path: Path) -> None:
    done = compiled(tmp_path, program())
    assert done.returncode == 0, done.stderr


def test_the_comparison_finds_a_difference(tmp_path: Path) -> None:
    """In an argument, in a number."""
    header = (ROOT / "ext/tensorflow/capi.h").read_text()
    wrong = header.replace("(const TF_Tensor *, int))", "(const TF_Tensor *, int64_t))")
    wrong = wrong.replace("HC_TF_BOOL = 10", "HC_TF_BOOL = 11")
    assert wrong.count("int64_t))") == 1
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow/capi.h").write_text(wrong)
    said = compiled(tmp_path, program()).stderr
    assert "TF_BOOL" in said
    assert "TF_Dim" in said

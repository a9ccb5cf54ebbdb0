# SPDX-License-Identifier: Apache-2.0
"""Our declarations of XLA's FFI against the header that jaxlib brings."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STRUCTS = {  # ours: theirs, and our fields: theirs, in pairs
    "hc_ffi_extension": ("XLA_FFI_Extension_Base", "size struct_size type type next next"),
    "hc_ffi_version": ("XLA_FFI_Api_Version", "size struct_size major major_version minor minor_version"),
    "hc_ffi_buffer": ("XLA_FFI_Buffer", "size struct_size dtype dtype data data rank rank dims dims"),
    "hc_ffi_span": ("XLA_FFI_ByteSpan", "text ptr length len"),
    "hc_ffi_scalar": ("XLA_FFI_Scalar", "dtype dtype value value"),
    "hc_ffi_array": ("XLA_FFI_Array", "dtype dtype count size data data"),
    "hc_ffi_buffers": ("XLA_FFI_Args", "size struct_size count size types types buffers args"),
    "hc_ffi_attributes": (
        "XLA_FFI_Attrs",
        "size struct_size count size types types names names values attrs",
    ),
    "hc_ffi_frame": (
        "XLA_FFI_CallFrame",
        "size struct_size extensions extension_start api api stage stage arguments args results rets "
        "attributes attrs future future",
    ),
    "hc_ffi_error": ("XLA_FFI_Error_Create_Args", "size struct_size message message code errc"),
    "hc_ffi_registration": (
        "XLA_FFI_Handler_Register_Args",
        "size struct_size extensions extension_start name name platform platform instantiate bundle.instantiate "
        "prepare bundle.prepare initialize bundle.initialize execute bundle.execute traits traits",
    ),
    "hc_ffi_future": ("XLA_FFI_Future_SetError_Args", "size struct_size future future error error"),
    "hc_ffi_api": (
        "XLA_FFI_Api",
        "size struct_size version api_version error_create XLA_FFI_Error_Create "
        "handler_register XLA_FFI_Handler_Register future_create XLA_FFI_Future_Create "
        "future_set_available XLA_FFI_Future_SetAvailable future_set_error XLA_FFI_Future_SetError",
    ),
    "hc_ffi_metadata": ("XLA_FFI_Metadata", "size struct_size version api_version traits traits"),
    "hc_ffi_metadata_extension": ("XLA_FFI_Metadata_Extension", "base extension_base metadata metadata"),
}
SAME_SIZE = ("hc_ffi_extension", "hc_ffi_version", "hc_ffi_buffer", "hc_ffi_span", "hc_ffi_scalar", "hc_ffi_array",
             "hc_ffi_buffers", "hc_ffi_attributes", "hc_ffi_error", "hc_ffi_registration", "hc_ffi_future")  # fmt: skip
CODES = {
    f"HC_FFI_{name}": f"XLA_FFI_DataType_{name}"
    for name in "PRED S8 S16 S32 S64 U8 U16 U32 U64 F16 F32 F64 BF16 C64 C128 TOKEN".split()
} | {
    "HC_FFI_METADATA": "XLA_FFI_Extension_Metadata",
    "HC_FFI_ARRAY": "XLA_FFI_AttrType_ARRAY",
    "HC_FFI_SCALAR": "XLA_FFI_AttrType_SCALAR",
    "HC_FFI_STRING": "XLA_FFI_AttrType_STRING",
    "HC_FFI_EXECUTE": "XLA_FFI_ExecutionStage_EXECUTE",
    "HC_FFI_MAJOR": "XLA_FFI_API_MAJOR",
    **{
        f"HC_FFI_{name}": f"XLA_FFI_Error_Code_{name}"
        for name in "INVALID_ARGUMENT RESOURCE_EXHAUSTED FAILED_PRECONDITION INTERNAL UNAVAILABLE".split()
    },
}


def program() -> str:
    lines = ['#include "xla/ffi/api/c_api.h"', '#include "xla/ffi.h"']
    for ours, (theirs, names) in STRUCTS.items():
        pairs = names.split()
        lines += [
            f'_Static_assert(offsetof({ours}, {mine}) == offsetof({theirs}, {other}), "{ours}.{mine}");'
            for mine, other in zip(pairs[::2], pairs[1::2], strict=True)
        ]
        if ours in SAME_SIZE:
            lines.append(f'_Static_assert(sizeof({ours}) == sizeof({theirs}), "{ours}");')
    lines += [f'_Static_assert({ours} == (int){theirs}, "{ours}");' for ours, theirs in CODES.items()]
    return "\n".join(lines) + "\n"


def headers() -> str:
    """The folder of XLA's headers. Workers that run no test of this file do not wait for JAX."""
    import jax

    return jax.ffi.include_dir()


def compiled(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    source = folder / "declarations.c"
    source.write_text(text)
    command = ["gcc", "-std=c11", "-fsyntax-only", f"-I{headers()}", f"-I{ROOT / 'ext'}", str(source)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_declarations_are_xlas(tmp_path: Path) -> None:
    if not Path(headers(), "xla/ffi/api/c_api.h").exists():
        pytest.skip("this jaxlib brings no header")
    done = compiled(tmp_path, program())
    assert done.returncode == 0, done.stderr


def test_the_comparison_finds_a_difference(tmp_path: Path) -> None:
    wrong = program().replace("offsetof(XLA_FFI_Buffer, rank)", "offsetof(XLA_FFI_Buffer, dims)")
    assert "hc_ffi_buffer.rank" in compiled(tmp_path, wrong).stderr

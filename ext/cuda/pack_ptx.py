# SPDX-License-Identifier: Apache-2.0
"""Make pack.ptx.inc (PTX as a C string) from pack.cu, with a pinned compiler that needs neither a GPU nor a driver.

    pip install --target FOLDER --no-deps nvidia-cuda-nvrtc-cu12==12.4.127
    python ext/cuda/pack_ptx.py FOLDER            rewrite pack.ptx.inc
    python ext/cuda/pack_ptx.py FOLDER --check    change nothing; exit status 1 if it is not up to date
    python ext/cuda/pack_ptx.py FOLDER --cubin sm_90 FILE    machine code of one card, by any NVRTC from 12 on

Compiled for compute_70 and with its version lowered to 7.0, the text is taken by every driver since CUDA 11 and every
card since Volta. That is sound as long as it uses no instruction that came later; an assembler with the version's
rules is the judge (tests/cuda/test_ptx.py).
"""

import argparse
import ctypes
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE / "pack.ptx.inc"
NVRTC = "12.4.127"
VERSION = ".version 7.0"
HEAD = f"""/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.ptx.inc - the kernels of pack.cu as text. Made by pack_ptx.py with NVRTC {NVRTC}: do not edit.
 */
"""


class Compiler:
    """NVRTC in a folder of packages."""

    def __init__(self, folder: Path) -> None:
        self.library = ctypes.CDLL(str(next(folder.glob("nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def __call__(self, name: str, *arguments: object) -> None:
        """Call a function of NVRTC; its failure ends the program."""
        status = getattr(self.library, name)(*arguments)
        if status:
            raise SystemExit(f"{name}: {self.library.nvrtcGetErrorString(status).decode()}")

    def compile(self, kind: str, architecture: str) -> bytes:
        """pack.cu as "PTX" for compute_70, or as "CUBIN" for sm_90."""
        program = ctypes.c_void_p()
        source = (HERE / "pack.cu").read_bytes()
        self("nvrtcCreateProgram", ctypes.byref(program), source, b"pack.cu", 0, None, None)
        options = [f"--gpu-architecture={architecture}".encode(), f"-I{HERE}".encode(), b"--std=c++17"]
        status = self.library.nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*options)
        )
        if status:
            raise SystemExit(self._read("nvrtcGetProgramLog", program).decode())
        return self._read(f"nvrtcGet{kind}", program)

    def _read(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self(f"{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self(what, program, text)
        return text.raw


def ptx(compiler: Compiler) -> str:
    """The text that is shipped: no comments, no empty lines, the version lowered."""
    text = compiler.compile("PTX", "compute_70").decode().rstrip("\0")
    lines = [line for line in (re.sub(r"//.*", "", line).rstrip() for line in text.splitlines()) if line]
    changed = [VERSION if line.startswith(".version") else line for line in lines]
    return "\n".join(changed) + "\n"


def as_c(text: str) -> str:
    """A string of C, a line a line."""
    quoted = [
        line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") for line in text.splitlines()
    ]
    return HEAD + "".join(f'"{line}\\n"\n' for line in quoted)


def main() -> int:
    """Write, compare, or compile to machine code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--cubin", nargs=2, metavar=("ARCHITECTURE", "FILE"))
    arguments = parser.parse_args()
    compiler = Compiler(arguments.folder)
    if arguments.cubin:
        architecture, file = arguments.cubin
        Path(file).write_bytes(compiler.compile("CUBIN", architecture))
        return 0
    made = as_c(ptx(compiler))
    if arguments.check:
        return int(made != TARGET.read_text())
    TARGET.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())

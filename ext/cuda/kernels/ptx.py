# SPDX-License-Identifier: Apache-2.0
"""Make hpccoll/_kernels/pack.ptx from pack.cu, and sum.ptx from sum.cu, with a pinned compiler that needs no GPU.

    pip install --target FOLDER --no-deps nvidia-cuda-nvrtc-cu12==12.4.127
    python ext/cuda/kernels/ptx.py FOLDER            write both files
    python ext/cuda/kernels/ptx.py FOLDER --check    change nothing; exit status 1 if a file is stale
    python ext/cuda/kernels/ptx.py FOLDER --cubin sm_90 INTO    INTO/pack.cubin, for one GPU, by any NVRTC since 12

The text is compiled for compute_70 and its version is lowered to 7.0, so every driver since CUDA 11 and every GPU since
Volta accepts it. This is correct as long as the text uses no later instruction; tests/cuda/test_ptx.py checks it with
an assembler that knows version 7.0.
"""

import argparse
import ctypes
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
INTO = HERE.parents[2] / "hpccoll" / "_kernels"
KERNELS = ("pack", "sum")
NVRTC = "12.4.127"
VERSION = ".version 7.0"
HEAD = """// SPDX-License-Identifier: Apache-2.0
// The kernels of {name}.cu, made by ext/cuda/kernels/ptx.py with NVRTC {nvrtc}: do not edit.
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

    def compile(self, name: str, kind: str, architecture: str) -> bytes:
        """Compile NAME.cu to "PTX" for compute_70, or to "CUBIN" for sm_90."""
        program = ctypes.c_void_p()
        source = (HERE / f"{name}.cu").read_bytes()
        self("nvrtcCreateProgram", ctypes.byref(program), source, f"{name}.cu".encode(), 0, None, None)
        options = [f"--gpu-architecture={architecture}".encode(), f"-I{HERE.parents[1]}".encode(), b"--std=c++17"]
        status = self.library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if status:
            raise SystemExit(self._read("nvrtcGetProgramLog", program).decode())
        return self._read(f"nvrtcGet{kind}", program)

    def _read(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self(f"{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self(what, program, text)
        return text.raw


def ptx(compiler: Compiler, name: str) -> str:
    """Return the text for the package: without comments and empty lines, with a head and the lower version."""
    text = compiler.compile(name, "PTX", "compute_70").decode().rstrip("\0")
    lines = [line for line in (re.sub(r"//.*", "", line).rstrip() for line in text.splitlines()) if line]
    changed = [VERSION if line.startswith(".version") else line for line in lines]
    return HEAD.format(name=name, nvrtc=NVRTC) + "\n".join(changed) + "\n"


def main() -> int:
    """Write, compare, or compile to machine code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--cubin", nargs=2, metavar=("ARCHITECTURE", "INTO"))
    arguments = parser.parse_args()
    compiler = Compiler(arguments.folder)
    if arguments.cubin:
        architecture, folder = arguments.cubin
        for name in KERNELS:
            Path(folder, f"{name}.cubin").write_bytes(compiler.compile(name, "CUBIN", architecture))
        return 0
    made = {INTO / f"{name}.ptx": ptx(compiler, name) for name in KERNELS}
    if arguments.check:
        return int(any(text != target.read_text() for target, text in made.items()))
    for target, text in made.items():
        target.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

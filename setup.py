# SPDX-License-Identifier: Apache-2.0
"""The table of extensions, and the library of C beside them. All that is static stands in pyproject.toml."""

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CFLAGS = ["-O3", "-g1", "-std=c11", "-fvisibility=hidden", "-ffp-contract=off", "-pthread"]
CFLAGS += [
    "-Wno-sign-compare",
    "-Wno-unused-function",
]  # of what Cython writes; tests are strict with what we write
LDFLAGS = ["-pthread", "-Wl,--as-needed", "-lm", "-lrt", "-ldl"]
LTO = ["-flto=auto"]  # a call from one of our C files into another then costs what a call within one does

INCLUDED = "ext/transport/net/mpi.c"  # by the file of each family of MPI libraries
MPI_SOURCES = sorted(glob("ext/transport/net/mpi_*.c"))
UCX_SOURCES = sorted(glob("ext/transport/net/ucx*.c"))
CUDA_SOURCES = [*sorted(glob("ext/cuda/**/*.c", recursive=True)), *("ext/core/status.c", "ext/core/reserve.c")]
CORE_SOURCES = sorted(
    {f for layer in ("core", "transport", "loop") for f in glob(f"ext/{layer}/**/*.c", recursive=True)}
    - {*MPI_SOURCES, *UCX_SOURCES, INCLUDED}
)

FLEET_SOURCES = sorted(glob("ext/core/*.c") + glob("ext/fleet/*.c"))
XLA_SOURCES = sorted(glob("ext/xla/*.c"))
TENSORFLOW_SOURCES = [*sorted(glob("ext/tensorflow/*.c")), "ext/core/status.c"]  # sizes of dtypes

EXTENSIONS = {
    "_core": CORE_SOURCES,
    "_cuda": CUDA_SOURCES,
    "_fleet": FLEET_SOURCES,
    "_mpi": MPI_SOURCES,
    "_tensorflow": TENSORFLOW_SOURCES,
    "_ucx": UCX_SOURCES,
    "_xla": XLA_SOURCES,
}

LIBRARY_SOURCES = [*CORE_SOURCES, *MPI_SOURCES, *sorted(glob("ext/api/*.c"))]
LIBRARY = "libhpccoll.so.1"
SYMBOLS = "ext/api/libhpccoll.map"
LIBRARY_FILES = {  # of the package, which is the library's prefix: hpccoll/lib, hpccoll/include
    "include": ["ext/api/hpccoll.h", *sorted(glob("bindings/fortran/*") + glob("bindings/cpp/*"))],
    "lib/pkgconfig": ["bindings/package/hpccoll.pc"],
    "lib/cmake/hpccoll": sorted(glob("bindings/package/*.cmake")),
}


class build(build_ext):
    """build_ext that waits for another build of the same tree, and compiles what changed."""

    def finalize_options(self) -> None:
        super().finalize_options()
        # Kept for an editable build, too, which would otherwise compile everything each time.
        self.build_temp = f"build/temp.{self.plat_name}-{sys.implementation.cache_tag}"

    def run(self) -> None:
        Path("build").mkdir(exist_ok=True)
        with open("build/lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            super().run()
            if self.inplace:
                for folder in ("lib", "include"):
                    shutil.copytree(Path(self.build_lib, "hpccoll", folder), f"hpccoll/{folder}", dirs_exist_ok=True)

    def build_extensions(self) -> None:
        """Keep the folders of this Python out of the extensions' RUNPATH: other machines have others."""
        own = shlex.split(f"{sysconfig.get_config_var('LDSHARED') or ''} {sysconfig.get_config_var('LDFLAGS') or ''}")
        ways = {word for word in own if word.startswith("-Wl,-rpath")}
        self.compiler.linker_so = [word for word in self.compiler.linker_so if word not in ways]
        # For all extensions or none: they share objects, and only a linker that was told so reads those of clang.
        self.lto = LTO if self.knows_lto() else []
        super().build_extensions()
        self.build_library()

    def build_library(self) -> None:
        """Link libhpccoll.so of the objects that the extensions have, and put what its users need beside it."""
        prefix = Path(self.build_lib, "hpccoll")
        library = prefix / "lib" / LIBRARY
        like = extension("_core", LIBRARY_SOURCES)
        self.compile_only_what_changed(like)
        self.compile_side_by_side()
        objects = self.compiler.compile(
            LIBRARY_SOURCES, output_dir=self.build_temp, macros=like.define_macros, include_dirs=like.include_dirs,
            extra_postargs=CFLAGS,
        )  # fmt: skip
        library.parent.mkdir(parents=True, exist_ok=True)
        if not library.exists() or any(os.path.getmtime(f) >= library.stat().st_mtime for f in (*objects, SYMBOLS)):
            naming = [f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script={SYMBOLS}"]
            fresh = library.with_suffix(".new")
            subprocess.run([*self.compiler.linker_so, *self.lto, *objects, *LDFLAGS, *naming, "-o", fresh], check=True)
            fresh.replace(library)
        # Where a wheel goes there are no links: for the linker a file that names the library is as good.
        (library.parent / "libhpccoll.so").write_text(f"INPUT({LIBRARY})\n")
        for folder, files in LIBRARY_FILES.items():
            (prefix / folder).mkdir(parents=True, exist_ok=True)
            for file in files:
                shutil.copy2(file, prefix / folder)

    def build_extension(self, extension: Extension) -> None:
        extension.extra_link_args += self.lto
        self.compile_only_what_changed(extension)
        self.compile_side_by_side()
        super().build_extension(extension)

    def knows_lto(self) -> bool:
        """Can compiler and linker optimize across files? clang without its linker plugin compiles, but cannot link."""
        with TemporaryDirectory() as folder:
            source, compiled, linked = (Path(folder, f"one.{kind}") for kind in ("c", "o", "so"))
            source.write_text("int one(void) { return 1; }\n")
            compiling = [*self.compiler.compiler_so, *LTO, "-c", source, "-o", compiled]
            linking = [*self.compiler.linker_so, *LTO, compiled, "-o", linked]
            return all(subprocess.run(step, capture_output=True).returncode == 0 for step in (compiling, linking))

    def compile_only_what_changed(self, extension: Extension) -> None:
        """Compile what is older than its source or a header; our C files with LTO, Cython's large ones without."""
        every_time = type(self.compiler)._compile
        shared = max(os.path.getmtime(f) for f in extension.depends)

        def compile_changed(obj: str, source: str, ext: str, cc: list[str], options: list[str], pp: list[str]) -> None:
            if os.path.exists(obj) and os.path.getmtime(obj) > max(shared, os.path.getmtime(source)):
                return
            ours = self.lto if source.startswith("ext/") else []
            every_time(self.compiler, obj, source, ext, cc, [*options, *ours], pp)

        self.compiler._compile = compile_changed

    def compile_side_by_side(self) -> None:
        compile_in_turn = type(self.compiler).compile

        def compile_all(sources: list[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as compilers:
                objects = compilers.map(lambda source: compile_in_turn(self.compiler, [source], **options), sources)
                return [obj for group in objects for obj in group]

        self.compiler.compile = compile_all


def extension(name: str, sources: list[str]) -> Extension:
    return Extension(
        f"hpccoll.{name}",
        sources=[f"ext/cython/{name}.pyx", *sources],
        depends=["setup.py", INCLUDED, *sorted(glob("ext/**/*.h", recursive=True) + glob("ext/cython/*.p*"))],
        include_dirs=["ext"],
        define_macros=[("_GNU_SOURCE", "")],
        extra_compile_args=CFLAGS.copy(),
        extra_link_args=LDFLAGS.copy(),
    )


setup(
    ext_modules=cythonize(
        [extension(name, sources) for name, sources in EXTENSIONS.items()],
        include_path=["ext/cython"],
        build_dir="build/cython",
        compiler_directives={"language_level": 3, "freethreading_compatible": False},
    ),
    cmdclass={"build_ext": build},
)

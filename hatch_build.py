"""Compiles the kernels of `fcfl.models` where there is a C compiler.

Without one the package is built all the same: NumPy and scipy then do what the kernels would.
`FCFL_COMPILED=0` builds it so on purpose.
"""

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

SOURCE = Path("src/fcfl/models/_kernels.c")

# Results must not depend on which instructions a processor has, so no a*b+c at once, and nothing
# that CFLAGS may say about the order of sums.
GCC_FLAGS = ["-O3", "-fno-fast-math", "-ffp-contract=off", "-fno-math-errno"]
MSVC_FLAGS = ["/O2", "/std:c11", "/fp:precise"]
LIMITED_API = ("Py_LIMITED_API", "0x030B0000")  # one module for every Python from 3.11 on


class CompiledKernels(BuildHookInterface[Any]):
    """Puts the compiled module beside its source, and the wheel's tag right."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before files are gathered, for wheels and for editable installations."""
        if self.target_name != "wheel" or os.environ.get("FCFL_COMPILED") == "0":
            return
        built = Path(self.root) / SOURCE.with_suffix(".pyd" if os.name == "nt" else ".abi3.so")
        try:
            _check_platform()
            _compile(Path(self.root) / SOURCE, built)
        except Exception as why:  # whatever a compiler that is not there may raise
            self.app.display_warning(f"fcfl is built without compiled kernels: {why}")
            return
        build_data["artifacts"].append(f"/{built.relative_to(self.root).as_posix()}")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{next(sys_tags()).platform}"


def _check_platform() -> None:
    """Only where the wheel's tag will be right, and the module can be loaded."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise RuntimeError("this Python has no stable interface for compiled modules")
    for name in ("ARCHFLAGS", "_PYTHON_HOST_PLATFORM"):
        if os.environ.get(name):
            raise RuntimeError(f"{name} asks for another machine than this one")


def _compile(source: Path, built: Path) -> None:
    """Compile and link by setuptools, which knows this platform's compiler."""
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    class ByCompiler(build_ext):
        """Flags by kind of compiler, which is known only here."""

        def build_extension(self, ext: Extension) -> None:
            is_msvc = self.compiler.compiler_type == "msvc"
            ext.extra_compile_args = MSVC_FLAGS if is_msvc else GCC_FLAGS
            super().build_extension(ext)

    extension = Extension(
        "_kernels", [str(source)], define_macros=[LIMITED_API], py_limited_api=True
    )
    with tempfile.TemporaryDirectory() as folder:
        command = ByCompiler(Distribution({"name": "fcfl", "ext_modules": [extension]}))
        command.build_lib = command.build_temp = folder
        command.ensure_finalized()
        command.run()
        built.write_bytes(Path(command.get_ext_fullpath("_kernels")).read_bytes())

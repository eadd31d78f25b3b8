"""Make what is in no commit: a hook of hatchling, which builds Penstock.

The synchronous client is written from the asynchronous client (`scripts/twins`). The compiled implementation is built
from `src/penstock/native/_core.pyx`.

An editable installation gets the compiled module beside its source; a wheel contains it and is for one interpreter.
`PENSTOCK_NATIVE` in the environment decides: with `require`, a failed build is an error; with `disable`, a pure wheel is
made; without it, a failed build is reported, and the wheel is pure. `PENSTOCK_SANITIZE=1` builds with AddressSanitizer and
UndefinedBehaviorSanitizer, for `scripts/fuzz_native`. A level of optimization in `CFLAGS` replaces `-O3`.
"""

import os
import runpy
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src", "penstock", "native")
SANITIZERS = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-fno-omit-frame-pointer",
]


class NativeHook(BuildHookInterface[Any]):
    """Builds the module before the files of a wheel are collected."""

    PLUGIN_NAME = "custom"
    folder: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the synchronous client, and build the compiled module, if that is wanted and possible.

        Args:
            version: `standard` or `editable`.
            build_data: The content of the wheel, for hatchling.
        """
        root = Path(self.root)
        runpy.run_path(str(root / "scripts" / "twins"))["write"]()
        # hatchling leaves out files that git ignores, unless they are named here.
        build_data["artifacts"].append("/src/penstock/client/synchronous*.py")
        wish = os.environ.get("PENSTOCK_NATIVE", "")
        if self.target_name != "wheel" or wish == "disable":
            return
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-native-"))
        try:
            built = build(root, self.folder)
        except BaseException as error:  # setuptools ends a failed compilation with SystemExit
            shutil.rmtree(self.folder, ignore_errors=True)
            if wish == "require" or not isinstance(error, (Exception, SystemExit)):
                raise
            sys.stderr.write(f"the compiled implementation is not built, Python is used: {error}\n")
            return
        if version == "editable":
            # Of the same file system, so that the file is there at once.
            place = root / FOLDER / f"{built.name}.new"
            shutil.copyfile(built, place)
            place.replace(place.with_suffix(""))
        else:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(built)] = f"penstock/native/{built.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the files of the build, when the wheel has been written; the parameters are hatchling's."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def build(root: Path, folder: Path) -> Path:
    """Compile the module, and return the file.

    Args:
        root: The directory of the project.
        folder: An empty directory for the files of the build.

    Returns:
        The file of the module, in the folder.

    Raises:
        Exception: Cython or the compiler failed.
        SystemExit: The compiler failed.
    """
    from Cython.Build import cythonize  # noqa: PLC0415 -- a pure wheel needs neither
    from setuptools import Distribution, Extension  # noqa: PLC0415

    digest = runpy.run_path(str(root / FOLDER / "digest.py"))["source_digest"](root / FOLDER)
    if os.environ.get("PENSTOCK_SANITIZE"):
        # Not optimized: that would take three times as long, and remove accesses that are to be checked. For a report,
        # lines are enough, without the variables.
        flags = ["-O0", "-g1", *SANITIZERS]
    else:  # Python's own flags ask for debug information, which takes a third of the compiler's time
        level = [] if "-O" in os.environ.get("CFLAGS", "") else ["-O3"]
        flags = [*level, "-g0"]
    extension = Extension(
        "penstock.native._core",
        [str(root / FOLDER / "_core.pyx")],
        define_macros=[("PENSTOCK_SOURCE", f'"{digest}"')],
        extra_compile_args=flags,
        extra_link_args=[flag for flag in flags if flag in SANITIZERS],
    )
    distribution = Distribution(
        {
            "name": "penstock",
            "ext_modules": cythonize([extension], build_dir=str(folder), quiet=True),
        }
    )
    command: Any = distribution.get_command_obj("build_ext")
    command.build_lib = command.build_temp = str(folder)
    command.ensure_finalized()
    command.run()
    (built,) = folder.glob("penstock/native/_core.*")
    return built

"""What every test runs under: a home of its own, a git identity, no network for the Hub, no user settings."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Point HOME and the XDG folders at a folder of the run's own, for its processes too."""
    home = tmp_path_factory.mktemp("home")
    os.environ.update(
        {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / ".local/share"),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
    )
    for name in ("KERNELGEN_TEMPLATE", "LOCAL_KERNELS", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "MAX_JOBS"):
        os.environ.pop(name, None)
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Test\n\temail = test@example.com\n[init]\n\tdefaultBranch = main\n"
    )


@pytest.fixture(scope="session")
def cuobjdump() -> Path:
    """NVIDIA's reader of CUDA objects: the toolkit's, or that of the nvidia-cuda-cuobjdump package."""
    places = [Path(shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump")]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        files = importlib.metadata.files("nvidia-cuda-cuobjdump") or []
        places += [Path(str(file.locate())) for file in files if file.name == "cuobjdump"]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        pytest.skip("no cuobjdump: neither a CUDA toolkit nor nvidia-cuda-cuobjdump is installed")
    if not os.access(found, os.X_OK):  # pip does not mark files outside bin/ as executable
        found.chmod(0o755)
    return found


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of this checkout."""
    return Path(__file__).parent.parent

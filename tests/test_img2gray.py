from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CSRC = ROOT / "examples" / "img2gray" / "csrc"
HOST = ROOT / "tests" / "cuda_on_host"


@pytest.mark.slow
def test_the_example_s_cuda_kernels_on_the_host(tmp_path: Path) -> None:
    """The kernels' logic and their every access, without a GPU: run as C++ under the address sanitizer."""
    for source in CSRC.iterdir():
        text = source.read_text(encoding="utf-8")
        text, launches = re.subn(
            r"(\w+)<<<(\w+), (\w+), 0, stream>>>\(", r"launch_on_host(\1, \2, \3, ", text
        )
        assert launches == (source.name == "vectors.cuh")
        name = f"{source.name}.cpp" if source.suffix == ".cu" else source.name
        (tmp_path / name).write_text(text, encoding="utf-8")
    for source in HOST.iterdir():
        shutil.copy(source, tmp_path)

    sources = ["check_img2gray.cpp", "img2gray.cu.cpp", "img2gray_backward.cu.cpp"]
    flags = ["-std=c++17", "-O1", "-g", "-ffp-contract=off", "-Wno-unknown-pragmas", "-DCUDA_KERNEL"]
    command = ["g++", *flags, "-fsanitize=address,undefined", "-I.", *sources, "-o", "check"]
    subprocess.run(command, cwd=tmp_path, check=True)
    run = subprocess.run(["./check"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    checked = re.fullmatch(r"(\d+) values, 0 wrong\n", run.stdout)
    assert checked, run.stdout
    assert int(checked[1]) > 1_000_000
    assert not run.stderr

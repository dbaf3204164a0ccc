"""The main job in one run: scaffold img2gray, put its kernels in, build, and check what it computes.

    python examples/quickstart.py [FOLDER]

Builds for the CPU, and for CUDA where nvcc is found; runs on the CPU, and on a GPU where there is one.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

EXAMPLE = Path(__file__).parent / "img2gray"

# A [1, 3, 64, 64] RGB image in, its [1, 1, 64, 64] luma out, held against the definition in integers.
PROGRAM = """
import torch, kernels
from pathlib import Path

kernel = kernels.get_local_kernel(Path("."))
for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
    image = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8, device=device)
    gray = kernel.img2gray(image)
    r, g, b = image.to(torch.int32).unbind(1)
    expected = ((19595 * r + 38470 * g + 7471 * b + 32768) >> 16).to(torch.uint8).unsqueeze(1)
    assert torch.equal(gray, expected)
    print(f"{device}: {list(image.shape)} {image.dtype} -> {list(gray.shape)}, all {gray.numel()} pixels right")
"""


def run(*command: str, cwd: Path) -> None:
    """Show a command and run it."""
    print("$", shlex.join(command), flush=True)
    subprocess.run([sys.executable, "-m", *command], cwd=cwd, check=True)


def main() -> None:
    """Go through the journey in a new folder."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="kernelgen-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    answers = yaml.safe_load((EXAMPLE / ".copier-answers.yml").read_text())
    options = [f"--dtypes={','.join(answers['dtypes'])}", "--repo-id", answers["repo_id"]]
    for schema in answers["ops"]:
        options += ["--op", schema]
    run("kernelgen", "new", "img2gray", *options, cwd=folder)
    project = folder / "img2gray"
    print("\n# What only a person can write comes from examples/img2gray: kernels, operators, tests.")
    bytecode = shutil.ignore_patterns("__pycache__")
    for part in ("csrc", "torch-ext", "tests"):
        shutil.copytree(EXAMPLE / part, project / part, dirs_exist_ok=True, ignore=bytecode)
    shutil.copy(EXAMPLE / "build.toml", project)
    subprocess.run(["git", "add", "-A"], cwd=project, check=True)
    # Without a git identity the project is staged, which a build takes as well.
    subprocess.run(["git", "commit", "-qm", "The kernels of img2gray"], cwd=project, check=False)
    run("kernelgen", "build", cwd=project)
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=project, check=True)


if __name__ == "__main__":
    main()

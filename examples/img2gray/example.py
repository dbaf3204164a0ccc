"""Loads the kernel as its users do, and calls it.

From the Hub:  python example.py
As built here: LOCAL_KERNELS=kernelgen/img2gray=build python example.py
"""

from __future__ import annotations

import kernels
import torch
from torch.testing import make_tensor

kernel = kernels.get_kernel("kernelgen/img2gray", version=1, trust_remote_code=True)

device = "cuda" if torch.cuda.is_available() else "cpu"
shape, dtype = (2, 3), torch.float32
image = make_tensor(shape, dtype=dtype, device=device)
print(kernel.img2gray(image))

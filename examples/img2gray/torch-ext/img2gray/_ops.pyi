# Managed by kernelgen, from the schemas in .copier-answers.yml: what `ops` has, for editors.

import torch

class _Ops:
    @staticmethod
    def img2gray(image: torch.Tensor) -> torch.Tensor: ...
    @staticmethod
    def img2gray_backward(grad: torch.Tensor) -> torch.Tensor: ...

ops: _Ops

def add_op_namespace_prefix(op_name: str) -> str: ...

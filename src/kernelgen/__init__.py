"""kernelgen: a declarative scaffolder and builder for GPU kernel projects."""

from __future__ import annotations

__version__ = "0.1.0"

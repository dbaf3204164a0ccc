"""`python -m kernelgen`."""

from __future__ import annotations

from kernelgen.cli import main

if __name__ == "__main__":
    main()

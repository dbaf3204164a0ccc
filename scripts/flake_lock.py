#!/usr/bin/env python3
"""Write the template's flake.lock: which kernel-builder, and which of its inputs, a new project builds with.

A lock is a function of a few facts, and they are all here, so that a new pin is a change of constants that a
reviewer can read. To move the pin, take the revision of huggingface/kernels from its commit page,
`lastModified` from the commit's time (seconds since 1970), `narHash` from `nix flake prefetch
github:huggingface/kernels/REV`, and the other nodes from the flake.lock of that revision. Nix offline does
not notice a wrong narHash, so a test holds this file's constant.

Usage: flake_lock.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parents[1] / "template" / "flake.lock"
INPUT = "kernel-builder"


@dataclass(frozen=True)
class Pin:
    """One locked GitHub repository.

    Attributes:
        repository: owner/name.
        rev: the commit, 40 hex digits.
        nar_hash: the SRI hash of the archive of that commit, as Nix serialises it.
        last_modified: the commit's time in seconds since 1970.
        inputs: its own inputs: the name of a node, or the path of another input that it follows.
        exact: the flake that asks for it names the commit, so that the lock must say so too.
    """

    repository: str
    rev: str
    nar_hash: str
    last_modified: int
    inputs: tuple[tuple[str, str | tuple[str, ...]], ...] = ()
    exact: bool = False


# kernel-builder of 2026-08-20: reads edition 5 of build.toml, builds for torch 2.12 and 2.13.
KERNEL_BUILDER = Pin(
    repository="huggingface/kernels",
    rev="8ac69fc542a4306eade0759ef7c45b4f2ae57df0",
    nar_hash="sha256-h7n5IcWCjzbAKh+cyvKCZYix4psCEFcAoyWyTABcexs=",
    last_modified=1787250351,
    inputs=tuple((name, name) for name in ("flake-compat", "flake-utils", "nixpkgs", "rust-overlay")),
)
TRANSITIVE = {
    "flake-compat": Pin(
        repository="edolstra/flake-compat",
        rev="5edf11c44bc78a0d334f6334cdaf7d60d732daab",
        nar_hash="sha256-vNpUSpF5Nuw8xvDLj2KCwwksIbjua2LZCqhV1LNRDns=",
        last_modified=1767039857,
    ),
    "flake-utils": Pin(
        repository="numtide/flake-utils",
        rev="11707dc2f618dd54ca8739b309ec4fc024de578b",
        nar_hash="sha256-l0KFg5HjrsfsO/JpG+r7fRrqm12kzFHyUHqHCVpMMbI=",
        last_modified=1731533236,
        inputs=(("systems", "systems"),),
    ),
    "nixpkgs": Pin(
        repository="NixOS/nixpkgs",
        rev="ec1a11210589d294f0ac99d3290a27e6c73dfa1d",
        nar_hash="sha256-tiQ8/qi8I45OOaBBYlVbXoAVkeQzvvTQOv5I45rMw5o=",
        last_modified=1783284758,
        exact=True,
    ),
    "rust-overlay": Pin(
        repository="oxalica/rust-overlay",
        rev="20ee15370c9256669d66968b89ee20a4b0a4e673",
        nar_hash="sha256-l7C/OsjcnWDOk2K3ssj+SBduwL67LashjBqis9+t468=",
        last_modified=1783320166,
        # Its nixpkgs is kernel-builder's; seen from the project that is a path with two steps.
        inputs=(("nixpkgs", (INPUT, "nixpkgs")),),
    ),
    "systems": Pin(
        repository="nix-systems/default",
        rev="da67096a3b9bf56a91d16901293e51ba5b49a27e",
        nar_hash="sha256-Vy1rq5AaRuLzOxct8nz4T6wlgyUR7zLU309k9mBC768=",
        last_modified=1681028828,
    ),
}


def lock() -> str:
    """The lock file's text: version 7, two-space JSON with sorted keys, as Nix writes it."""
    nodes = {name: _node(pin) for name, pin in {INPUT: KERNEL_BUILDER, **TRANSITIVE}.items()}
    whole = {"nodes": {**nodes, "root": {"inputs": {INPUT: INPUT}}}, "root": "root", "version": 7}
    return json.dumps(whole, indent=2, sort_keys=True) + "\n"


def _node(pin: Pin) -> dict[str, Any]:
    owner, repo = pin.repository.split("/")
    address = {"owner": owner, "repo": repo, "type": "github"}
    locked = {**address, "lastModified": pin.last_modified, "narHash": pin.nar_hash, "rev": pin.rev}
    original = {**address, "rev": pin.rev} if pin.exact else address
    inputs = {name: list(to) if isinstance(to, tuple) else to for name, to in pin.inputs}
    return {"locked": locked, "original": original, **({"inputs": inputs} if inputs else {})}


def main() -> int:
    """Write the lock, or with --check say whether it is what would be written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file differs")
    if parser.parse_args().check:
        return 0 if LOCK.is_file() and LOCK.read_text(encoding="utf-8") == lock() else 1
    LOCK.write_text(lock(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A local Hub for a test, and this process's huggingface_hub pointed at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .server import Account, Hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "hf_owner"  # noqa: S105 - a token of the local Hub alone


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with the user `ada`, who may write to the organisation `acme`, logged in."""
    from huggingface_hub import constants

    root = tmp_path / "hub"
    root.mkdir()
    server = Hub(root)
    server.add_account(Account("ada", orgs={"acme": "write"}), TOKEN)
    for name in ("HF_OIDC_RESOURCE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    # Read from the environment when huggingface_hub is imported, which has long happened here.
    monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    yield server
    server.close()

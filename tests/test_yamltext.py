"""YAML that a person wrote: what cannot be read is an error of theirs, with its place and a way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kernelgen import card, git, scaffold, update
from kernelgen.cli._common import pair
from kernelgen.errors import KernelgenError
from kernelgen.journal import File
from kernelgen.project import _answers
from kernelgen.template import TemplateSource

if TYPE_CHECKING:
    from pathlib import Path

WRONG = ["a: [", "a: 2024-13-45", "a: !!python/object:x.Y {}", "a: \x01"]
"""No YAML, a day that is in no month, a type that is not plain, a character that is not allowed."""


@pytest.mark.parametrize("value", ["[", "2024-13-45", "!!python/object:x.Y {}", "\x01"])
def test_a_value_on_the_command_line(value: str) -> None:
    with pytest.raises(KernelgenError) as caught:
        pair(f"version={value}")
    assert caught.value.what == f"the value of version is not YAML: {value!r}"
    assert caught.value.where == "--data"
    assert caught.value.way_out == f"""put it in quotes if it is text: --data 'version="{value}"'"""
    assert caught.value.detail


def test_values_are_read_as_yaml() -> None:
    assert [pair(f"a={v}")[1] for v in ("2", "[x, y]", '"2024-13-45"', "")] == [
        2,
        ["x", "y"],
        "2024-13-45",
        None,
    ]


@pytest.mark.parametrize("text", WRONG)
def test_the_answers_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / update.ANSWERS
    path.write_text(text)
    for read, folder in ((_answers, tmp_path), (update.read_answers, tmp_path)):
        with pytest.raises(KernelgenError) as caught:
            read(folder)
        assert caught.value.what == "the answers file is not YAML"
        assert caught.value.where == str(path)
        assert caught.value.way_out == f"take it back from git: git checkout HEAD -- {update.ANSWERS}"
    path.write_bytes(b"a: \xff")
    with pytest.raises(KernelgenError, match="the answers file is not YAML"):
        _answers(tmp_path)


@pytest.mark.parametrize("text", [*WRONG, "- a"])
def test_what_a_template_writes(text: str) -> None:
    files = {update.ANSWERS: File("100644", text.encode())}
    with pytest.raises(KernelgenError) as caught:
        update._parse_answers(files)
    assert caught.value.what.startswith("the answers file that the template writes")
    assert caught.value.where == update.ANSWERS


@pytest.mark.parametrize("text", WRONG)
def test_a_cards_front_matter(tmp_path: Path, text: str) -> None:
    with pytest.raises(KernelgenError) as caught:
        card._check_front_matter(f"---\n{text}\n---\n", tmp_path / "CARD.md")
    assert caught.value.what == "the card's front matter is not YAML"
    assert caught.value.where == str(tmp_path / "CARD.md")


@pytest.mark.parametrize("text", WRONG)
def test_a_templates_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(git, "text", lambda *_, **__: text)
    with pytest.raises(KernelgenError) as caught:
        scaffold.questions(TemplateSource(str(tmp_path), "v1", "1"))
    assert caught.value.what == "the template's copier.yml is not YAML"

"""What a shared object says of itself: what it loads, how that is found, what it shares, for which GPUs.

Read from the dynamic section and the dynamic symbol table, which stripping leaves, so a stripped object is
judged like any other.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelgen.errors import KernelgenError
from kernelgen.toolchain import arch_order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Mangled names of at::, c10:: and torch::, functions, constants, type information and tables alike.
_TORCH_SYMBOL = re.compile(r"_Z(?:T[ISVTCc]\w*?|GV|[LK])*N?[KVR]*(?:2at|3c10|5torch(?!6stable))")
_FATBIN = b"\x50\xed\x55\xba\x01\x00\x10\x00"  # magic 0xBA55ED50, version 1, header of 16 bytes
_IMAGE_KINDS = {1: "ptx", 2: "sm"}
_EXECUTABLE = 1  # PF_X


@dataclass(frozen=True)
class Library:
    """The facts of one ELF shared object."""

    machine: str  # "x86_64" or "aarch64"
    needed: tuple[str, ...]  # DT_NEEDED, in order
    search_path: str | None  # DT_RPATH or DT_RUNPATH
    executable_stack: bool  # asked for, or left to the system's default, which is executable
    text_relocations: bool
    exported: tuple[str, ...]  # defined dynamic symbols
    shared: tuple[str, ...]  # of them, GNU unique: one for all libraries of a process
    undefined: tuple[str, ...]
    architectures: tuple[tuple[str, str], ...]  # device images: ("sm", "9.0"), ("ptx", "12.0")

    def torch_symbols(self) -> tuple[str, ...]:
        """Undefined C++ symbols of torch outside its stable ABI, mangled."""
        return tuple(name for name in self.undefined if _TORCH_SYMBOL.match(name))


def read(path: Path) -> Library:
    """Read a shared object.

    Raises:
        KernelgenError: it is not ELF, or damaged.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            return _read(ELFFile(file), path.read_bytes())
    except (ELFError, OSError, ValueError, KeyError) as error:
        raise KernelgenError(f"not a readable shared object: {error}", where=str(path)) from None


def _read(elf: Any, data: bytes) -> Library:
    tags = list(_dynamic(elf))
    symbols = list(_symbols(elf))
    defined = [(name, bind) for name, bind, section in symbols if section != "SHN_UNDEF"]
    flags = [tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS"]
    return Library(
        machine={"x64": "x86_64", "AArch64": "aarch64"}.get(elf.get_machine_arch(), elf.get_machine_arch()),
        needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        search_path=next((_path(tag) for tag in tags if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH")), None),
        executable_stack=_executable_stack(elf),
        text_relocations=any(tag.entry.d_tag == "DT_TEXTREL" for tag in tags) or any(f & 4 for f in flags),
        exported=tuple(sorted(name for name, _ in defined)),
        shared=tuple(sorted(name for name, bind in defined if bind in ("STB_GNU_UNIQUE", "STB_LOOS"))),
        undefined=tuple(sorted(name for name, _, section in symbols if section == "SHN_UNDEF" and name)),
        architectures=tuple(sorted(set(device_images(data)), key=lambda i: (i[0], arch_order(i[1])))),
    )


def _dynamic(elf: Any) -> Iterator[Any]:
    section = elf.get_section_by_name(".dynamic")
    if section is not None:
        yield from section.iter_tags()


def _path(tag: Any) -> str:
    return str(getattr(tag, "rpath", None) or getattr(tag, "runpath", ""))


def _symbols(elf: Any) -> Iterator[tuple[str, str, Any]]:
    """Global symbols of the dynamic table: name, binding, section."""
    table = elf.get_section_by_name(".dynsym")
    for symbol in table.iter_symbols() if table is not None else ():
        bind = symbol.entry.st_info.bind
        if bind != "STB_LOCAL":
            yield symbol.name, bind, symbol.entry.st_shndx


def _executable_stack(elf: Any) -> bool:
    for segment in elf.iter_segments():
        if segment.header.p_type == "PT_GNU_STACK":
            return bool(segment.header.p_flags & _EXECUTABLE)
    return True


def device_images(data: bytes) -> Iterator[tuple[str, str]]:
    """The kinds and architectures of the CUDA images in a file.

    A fat binary's head is followed by images. Each has its kind (16 bits; 1 is PTX, 2 machine code), a
    version (16), the size of its head (32) and of its payload (64), and at byte 28 the architecture: 90 is
    9.0, 120 is 12.0. (Laid out in no document of NVIDIA's; compared with cuobjdump of CUDA 13.2.)
    """
    for match in re.finditer(re.escape(_FATBIN), data):
        at = match.end() + 8
        end = at + int.from_bytes(data[match.end() : at], "little")
        while at + 32 <= min(end, len(data)):
            kind = int.from_bytes(data[at : at + 2], "little")
            head = int.from_bytes(data[at + 4 : at + 8], "little")
            payload = int.from_bytes(data[at + 8 : at + 16], "little")
            number = int.from_bytes(data[at + 28 : at + 32], "little")
            if kind in _IMAGE_KINDS and number:
                yield _IMAGE_KINDS[kind], f"{number // 10}.{number % 10}"
            if head + payload <= 0:
                break
            at += head + payload


def object_with_undefined(names: tuple[str, ...]) -> bytes:
    """A relocatable ELF64 object that has nothing but undefined symbols of these names.

    For judges that read the static symbol table only: what a stripped library leaves undefined, put where
    they look. Sections: none, .symtab, .strtab (symbols' and sections' names alike); System V ABI, chapter 4.
    """
    strings = b"\0.symtab\0.strtab\0"
    symbols = b"\0" * 24
    for name in names:
        # st_name, st_info (global, no type), st_other, st_shndx (undefined), st_value, st_size
        symbols += struct.pack("<IBBHQQ", len(strings), 0x10, 0, 0, 0, 0)
        strings += name.encode() + b"\0"
    at_symbols, at_strings = 64, 64 + len(symbols)
    at_sections = at_strings + len(strings)
    head = b"\x7fELF\2\1\1" + b"\0" * 9
    # e_type REL, e_machine x86-64, version, entry, program headers, section headers, flags, sizes, counts
    head += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, at_sections, 0, 64, 0, 0, 64, 3, 2)
    # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link, sh_info, sh_addralign, sh_entsize
    section = struct.Struct("<IIQQQQIIQQ")
    table = section.pack(*[0] * 10)
    table += section.pack(1, 2, 0, 0, at_symbols, len(symbols), 2, 1, 8, 24)
    table += section.pack(9, 3, 0, 0, at_strings, len(strings), 0, 0, 1, 0)
    return head + symbols + strings + table

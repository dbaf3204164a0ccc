"""A built variant, judged by running it: each in a process of its own, by the loader and by torch."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgen import artefact, schema, twin
from kernelgen.artefact import Judged
from kernelgen.errors import KernelgenError
from kernelgen.finding import RULES, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kernelgen.project import Project
    from kernelgen.variants import Built

_TRIAL_SECONDS = 600


def trials(
    project: Project, built: Sequence[Built], python: Path | str, tell: Callable[[str], None]
) -> list[Finding]:
    """Load and call every variant that the loader takes on this machine.

    Args:
        project: whose variants they are.
        built: the variants.
        python: the interpreter that loads them.
        tell: told what is being tried.

    Returns:
        Findings of the KG4xx rules; a variant that does not load here for a good reason gives a note.
    """
    found = _run_trial(python, {"build": str(project.root / "build")})
    if found.result is None or "error" in found.result:
        why = (found.result or {}).get("error") or found.said
        message = f"nothing was loaded: {why}"
        if re.search(r"No module named '(kernels|torch)'", why):
            way_out = f"{python} -m pip install kernels torch"
            return [Finding("KG401", RULES["KG401"], "warn", message, way_out)]
        return [Finding("KG401", RULES["KG401"], "error", message)]
    accepted = dict(found.result["accepted"])
    findings = []
    for one in built:
        if artefact.trouble(one.path):
            message = "not tried: its metadata cannot be read"
            findings.append(Finding("KG401", one.name, "error", message, "kernelgen build"))
        elif one.name in accepted:
            tell(f"loading {one.name}")
            findings += _try(project, one, python)
        else:
            reason = found.result["refused"].get(one.name, "the loader passes it over")
            findings.append(Finding("KG401", one.name, "note", f"not tried here: {reason}"))
    return findings


@dataclass(frozen=True)
class _Outcome:
    """What came of one process."""

    result: dict[str, Any] | None
    said: str  # why it ended early, with its last lines; empty when it did not


def _run_trial(python: Path | str, job: dict[str, Any], *, offline: bool = True) -> _Outcome:
    """Run one job of `trial` in a fresh process, without a trace in the variant's folder.

    Args:
        python: the interpreter.
        job: as `trial` reads it.
        offline: keep the loader from the network; not for kernels that fetch others.
    """
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as folder:
        given, answer = Path(folder) / "job.json", Path(folder) / "result.json"
        given.write_text(json.dumps(job), "utf-8")
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
        env |= {"HF_HUB_OFFLINE": "1"} if offline else {}
        program = Path(folder) / "trial.py"  # alone in a folder, so that nothing shadows a library
        program.write_bytes(Path(__file__).with_name("trial.py").read_bytes())
        command = [str(python), str(program), str(given), str(answer)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", cwd=folder, env=env, check=False,
                timeout=_TRIAL_SECONDS, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            status, output = done.returncode, done.stderr
        except subprocess.TimeoutExpired:
            status, output = 124, f"no end after {_TRIAL_SECONDS} s"
        except OSError as error:
            raise KernelgenError(f"{python} does not start: {error.strerror}", where="--python") from None
        result = json.loads(answer.read_text("utf-8")) if answer.is_file() else None
    return _Outcome(result, _ending(status, output) if status else "")


def _ending(status: int, output: str) -> str:
    """How a process ended, in words."""
    lines = [line.strip() for line in output.strip().splitlines() if line.strip()]
    # A C++ exception that nothing caught is told by `what():`, long before the last frame of the stack.
    last = next((line for line in lines if line.startswith("what():")), lines[-1] if lines else "")
    if status < 0:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
        return f"the process was killed by {name}" + (f": {last}" if last else "")
    return last or f"exit status {status}"


def _try(project: Project, built: Built, python: Path | str) -> list[Finding]:
    metadata = json.loads((built.path / "metadata.json").read_text("utf-8"))
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as folder:
        copy = Path(folder) / built.name
        twin_id = twin.make(built.path, metadata, copy)
        job = {
            "variant": str(built.path),
            "id": metadata["id"],
            "torch_ops": bool(built.variant and built.variant.kind != "tvm-ffi"),
            "ops": _declared(project.answers),
            "twin": str(copy) if twin_id else None,
            "twin_id": twin_id,
            "opcheck": True,
            "device": "cuda" if metadata["backend"]["type"] in ("cuda", "rocm") else "cpu",
        }
        outcome = _run_trial(python, job, offline=not project.kernel_depends)
    return [*_read_trial(Judged(project, built, metadata), outcome, twin_id)]


def _declared(answers: Mapping[str, Any]) -> list[str] | None:
    """The schemas that a project says it registers; None where it says nothing."""
    ops = answers.get("ops")
    if not isinstance(ops, list):
        return None
    try:
        parsed = [schema.parse(str(op)) for op in ops]
    except KernelgenError:
        return [str(op) for op in ops]  # an adopted project may have operators that we would not declare
    return [str(one) for one in schema.registered(parsed, autograd=bool(answers.get("autograd")))]


def _read_trial(variant: Judged, outcome: _Outcome, twin_id: str | None) -> Iterator[Finding]:
    """Findings from a trial's result, whole or cut short by a crash."""
    result = outcome.result or {}
    running = result.get("running")
    if running == "twin" and f"namespace {variant.metadata['id']}" in outcome.said:
        twin_id = None  # the copy still had its model's id somewhere: it says nothing about the kernel
    elif running:
        code = _STEP_CODES.get(running, "KG401")
        yield variant.fault(code, f"{RULES[code]}: {outcome.said or 'the process ended'}", _trace(result))
    elif not result:
        yield variant.fault("KG401", outcome.said or "the process ended without a word")
    for step, code in _STEP_CODES.items():
        if step in result and step != result.get("running"):
            yield from _read_step(variant, step, code, result[step])
    if "load" in result and "error" not in result["load"] and twin_id is None:
        message = "not tried: no second id can be put into this build"
        yield variant.fault("KG406", message, verdict="note")


def _trace(_result: dict[str, Any]) -> str:
    return "run the project's tests under a debugger: gdb --args python -m pytest"


_STEP_CODES = {
    "load": "KG401",
    "public": "KG402",
    "schemas": "KG403",
    "fakes": "KG404",
    "opcheck": "KG405",
    "twin": "KG406",
    "layers": "KG407",
}


def _read_step(variant: Judged, step: str, code: str, found: dict[str, Any]) -> Iterator[Finding]:
    if "error" in found:
        yield variant.fault(code, _readable(found["error"]), _way_out_of(found["error"]))
        return
    faults = list(_STEP_READERS[step](variant, found))
    yield from faults or [variant.ok(code, _step_ok(step, found))]


def _readable(error: str) -> str:
    """An error with its mangled C++ symbol in plain words, where c++filt is installed."""
    symbol = re.search(r"undefined symbol: (_Z\w+)", error)
    if symbol is None or shutil.which("c++filt") is None:
        return error
    command = ["c++filt", symbol[1]]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    plain = done.stdout.strip()
    return error.replace(symbol[1], f"{symbol[1]} ({plain})")


def _way_out_of(error: str) -> str | None:
    """The way out of errors that have one."""
    if "undefined symbol" in error:
        return "build it again for this torch: kernelgen build"
    if "single TORCH_LIBRARY" in error:
        return "use TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops): the namespace must be the build's"
    return None


def _step_ok(step: str, found: dict[str, Any]) -> str:
    """What a step that found no fault has to say."""
    count = {"public": "names", "fakes": "operators"}
    if step in count:
        size = found["operators"] if step == "fakes" else len(found["names"])
        return f"{size} {count[step]}"
    return {
        "load": "in a fresh process, by kernels",
        "schemas": ", ".join(s.partition("(")[0] for s in found.get("registered", ())) or "no operator",
        "opcheck": ", ".join(found) or "no operator",
        "twin": "both versions have their operators",
        "layers": ", ".join(found.get("layers", ())) or "there are none",
    }[step]


def _read_public(variant: Judged, found: dict[str, Any]) -> Iterator[Finding]:
    for name in found["missing"]:
        yield variant.fault("KG402", f"__all__ names {name}, which the module does not have")


def _read_schemas(variant: Judged, found: dict[str, Any]) -> Iterator[Finding]:
    for declared in found["missing"]:
        message = f"declared, but not registered: {declared}"
        yield variant.fault("KG403", message, "kernelgen update renders the binding anew; then build")
    for undeclared in found["undeclared"]:
        message = f"registered, but not declared: {undeclared}"
        yield variant.fault("KG403", message, "declare it: kernelgen op add")


def _read_fakes(variant: Judged, found: dict[str, Any]) -> Iterator[Finding]:
    for name in found["lacking"]:
        message = f"{name} has no fake: torch.compile cannot trace it"
        way_out = f'@torch.library.register_fake(add_op_namespace_prefix("{name}"))'
        yield variant.fault("KG404", message, way_out, verdict="warn")


def _read_opcheck(variant: Judged, found: dict[str, Any]) -> Iterator[Finding]:
    for name, one in found.items():
        if not one["inputs"]:
            message = f"{name}: not tried, it took none of the inputs that can be guessed"
            yield variant.fault("KG405", message, "torch.library.opcheck in its own tests", verdict="note")
            continue
        for test, said in one["failed"].items():
            yield variant.fault("KG405", f"{name}: {test}: {said.splitlines()[0]}")


def _read_twin(variant: Judged, found: dict[str, Any]) -> Iterator[Finding]:
    first, second = found["operators"]
    if not found["distinct"]:
        yield variant.fault("KG406", "the second version is the first again")
    elif first != second:
        message = f"of {first} operators the second version has {second}: some are under a fixed namespace"
        yield variant.fault("KG406", message, "take every operator's name from add_op_namespace_prefix")


def _read_layers(variant: Judged, found: dict[str, Any]) -> Iterator[Finding]:
    for name, said in found.get("faults", {}).items():
        yield variant.fault("KG407", f"{name}: {said}")


def _read_load(_variant: Judged, _found: dict[str, Any]) -> Iterator[Finding]:
    return iter(())


_STEP_READERS: dict[str, Callable[[Judged, dict[str, Any]], Iterator[Finding]]] = {
    "load": _read_load,
    "public": _read_public,
    "schemas": _read_schemas,
    "fakes": _read_fakes,
    "opcheck": _read_opcheck,
    "twin": _read_twin,
    "layers": _read_layers,
}

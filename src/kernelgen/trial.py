"""The judges that must run a kernel: this file alone runs in the interpreter that will load it.

It is run as a program by `check`, in a process of its own, because a kernel may crash, and because only a
fresh process shows that it loads by itself. It needs torch and kernels, not kernelgen, and Python 3.9.

    python trial.py JOB.json RESULT.json

The result is written after every step, so that what was found before a crash is not lost.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Result = dict[str, Any]

# Shapes that operators of many kinds take: an image, a matrix, a vector, images, a sequence, one element.
_SHAPES = ((3, 8, 8), (8, 8), (16,), (2, 3, 8, 8), (2, 4, 16), (1, 8, 8), (1,))
_TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
_DTYPES = ("float32", "uint8", "int64")


def survey(job: Result) -> Result:
    """Which variants of a folder the loader takes here, and why not the others."""
    variants_of = _loader_part("variants")
    variants = variants_of.get_variants_local(Path(job["build"]))
    accepted: dict[str, str | None] = {}
    refused: dict[str, str] = {}
    for backend in (None, "cpu"):
        try:
            good, trace = variants_of.resolve_variants(variants, backend)
        except Exception as error:
            return {"error": _said(error), "accepted": [], "refused": {}}
        for variant in good:
            accepted.setdefault(variant.variant_str, backend)
        for decision in trace:
            reason = getattr(decision, "reason", None)
            if reason:
                refused.setdefault(decision.variant.variant_str, str(reason))
    names = {name: refused[name] for name in refused if name not in accepted}
    return {"accepted": [[name, backend] for name, backend in accepted.items()], "refused": names}


class Trial:
    """One variant, step by step."""

    def __init__(self, job: Result, note: Callable[[Result], None]) -> None:
        self.job = job
        self.result: Result = {}
        self._note = note
        self.kernel: Any = None

    def run(self) -> None:
        """All steps; one that needs what an earlier one failed to give is left out."""
        self._step("load", self.load)
        if self.kernel is None:
            return
        self._step("public", self.public)
        if self.job["torch_ops"]:
            self._step("schemas", self.schemas)
            self._step("fakes", self.fakes)
        self._step("layers", self.layers)
        if self.job.get("twin"):
            self._step("twin", self.twin)
        if self.job["torch_ops"] and self.job["opcheck"]:
            self._step("opcheck", self.opcheck)

    def _step(self, name: str, step: Callable[[], Result]) -> None:
        self._note({**self.result, "running": name})
        try:
            self.result[name] = step()
        except (Exception, SystemExit) as error:
            last = traceback.format_exc().strip().splitlines()[-12:]
            self.result[name] = {"error": _said(error), "trace": "\n".join(last)}
        self._note(self.result)

    def load(self) -> Result:
        """Load as a user does, by the loader."""
        self.kernel = _load(Path(self.job["variant"]))
        return {"module": self.kernel.__name__}

    def public(self) -> Result:
        """The names of __all__ that the module lacks."""
        names = list(getattr(self.kernel, "__all__", ()))
        return {"names": names, "missing": [n for n in names if not hasattr(self.kernel, n)]}

    def schemas(self) -> Result:
        """The operators that were registered under the build's namespace."""
        found = {str(s).partition("::")[2]: s for s in self._registered()}
        declared = self.job.get("ops")
        if declared is None:
            return {"registered": sorted(found), "missing": [], "undeclared": []}
        import torch

        wanted = [
            str(torch._C.parse_schema(f"{self.job['id']}::{text}")).partition("::")[2] for text in declared
        ]
        return {
            "registered": sorted(found),
            "missing": sorted(set(wanted) - set(found)),
            "undeclared": sorted(set(found) - set(wanted)),
        }

    def _registered(self) -> list[Any]:
        import torch

        namespace = f"{self.job['id']}::"
        names = {
            n.partition(".")[0] for n in torch._C._dispatch_get_all_op_names() if n.startswith(namespace)
        }
        return [s for name in sorted(names) for s in torch._C._jit_get_schemas_for_operator(name)]

    def fakes(self) -> Result:
        """Operators that torch.compile cannot trace, because nothing says what they return."""
        lacking = [str(s.name).partition("::")[2] for s in self._registered() if not _has_fake(_qualified(s))]
        return {"operators": len(self._registered()), "lacking": lacking}

    def layers(self) -> Result:
        """Layers that the loader would refuse, by its own judge."""
        module = getattr(self.kernel, "layers", None)
        if module is None:
            return {"layers": []}
        import torch

        judge = _loader_part("layer.layer")
        found, faults = [], {}
        for name, value in vars(module).items():
            own = inspect.isclass(value) and str(getattr(value, "__module__", "")).startswith(
                self.kernel.__name__
            )
            if name.startswith("_") or not own:
                continue
            found.append(name)
            try:
                judge._validate_layer(check_cls=value, cls=value, repo=name)
            except (TypeError, AttributeError) as error:
                faults[name] = _said(error)
            if inspect.isclass(value) and not issubclass(value, torch.nn.Module):
                faults[name] = "is not a torch.nn.Module"
        return {"layers": found, "faults": faults}

    def twin(self) -> Result:
        """Load a second version of the kernel beside the first, and see that both have their operators."""
        import torch

        other = _load(Path(self.job["twin"]))
        namespaces = (self.job["id"], self.job["twin_id"])
        counts = [
            sum(name.startswith(f"{namespace}::") for name in torch._C._dispatch_get_all_op_names())
            for namespace in namespaces
        ]
        return {"distinct": other is not self.kernel, "operators": counts}

    def opcheck(self) -> Result:
        """torch.library.opcheck on every operator, with inputs that it accepts."""
        import torch

        results: Result = {}
        for schema in self._registered():
            name = str(schema.name).partition("::")[2]
            packet = getattr(getattr(torch.ops, self.job["id"]), name)
            op = getattr(packet, schema.overload_name or "default")
            arguments = _accepted_arguments(op, schema, self.job["device"])
            if arguments is None:
                results[name] = {"inputs": False}
                continue
            tests = _TESTS if _has_fake(_qualified(schema)) else _TESTS[:2]
            outcome = torch.library.opcheck(op, *arguments, test_utils=tests, raise_exception=False)
            failed = {test: _said(said) for test, said in outcome.items() if said != "SUCCESS"}
            results[name] = {"inputs": True, "tests": len(outcome), "failed": failed}
            self._note({**self.result, "opcheck": results, "running": "opcheck"})
        return results


def _loader_part(name: str) -> Any:
    """A module of the loader that is not public: it moved in kernels 0.19."""
    try:
        return importlib.import_module(f"kernels._internals.{name}")
    except ModuleNotFoundError:
        return importlib.import_module(f"kernels.{name}")


def _load(variant: Path) -> Any:
    return importlib.import_module("kernels").get_local_kernel(variant)


def _qualified(schema: Any) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def _has_fake(name: str) -> bool:
    import torch
    from torch._library.simple_registry import singleton

    keys = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    if any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys):
        return True
    return singleton.find(name.partition(".")[0]).fake_impl.kernel is not None


def _accepted_arguments(op: Any, schema: Any, device: str) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Arguments that an operator takes without an error: like tensors, defaults, small numbers."""
    for shape, dtype in itertools.product(_SHAPES, _DTYPES):
        made = _arguments(schema, shape, dtype, device)
        if made is None:
            return None
        try:
            op(*made[0], **made[1])
        except Exception:  # noqa: S112 - an operator may refuse in any way; the next arguments are tried
            continue
        return _arguments(schema, shape, dtype, device)
    return None


def _arguments(
    schema: Any, shape: tuple[int, ...], dtype: str, device: str
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in schema.arguments:
        if argument.has_default_value():
            continue
        values = list(_values(str(argument.type), shape, dtype, device))
        if not values:
            return None
        if argument.kwarg_only:
            kwargs[argument.name] = values[0]
        else:
            args.append(values[0])
    return tuple(args), kwargs


def _values(kind: str, shape: tuple[int, ...], dtype: str, device: str) -> Iterator[Any]:
    """A value of a schema type; none for a type that we cannot make."""
    import torch

    if kind.startswith("Optional["):
        yield None
    elif kind == "Tensor":
        torch.manual_seed(0)
        yield (torch.rand(shape, device=device) * 8).to(getattr(torch, dtype))
    elif kind == "List[Tensor]":
        yield [next(_values("Tensor", shape, dtype, device)) for _ in range(2)]
    elif kind in ("int", "SymInt"):
        yield 1
    elif kind in ("float", "number"):
        yield 1.0
    elif kind == "bool":
        yield False
    elif kind in ("List[int]", "List[SymInt]"):
        yield list(shape)
    elif kind == "List[float]":
        yield [1.0] * len(shape)


def _said(error: object) -> str:
    text = str(error).strip()
    name = type(error).__name__
    return f"{name}: {text}" if text and not isinstance(error, str) else text or name


def main(job_path: str, result_path: str) -> None:
    """Read the job, run it, write the result."""
    job: Result = json.loads(Path(job_path).read_text("utf-8"))

    def note(result: Result) -> None:
        temporary = Path(result_path + ".part")
        temporary.write_text(json.dumps(result), "utf-8")
        temporary.replace(result_path)

    if "build" in job:
        note(survey(job))
    else:
        Trial(job, note).run()


if __name__ == "__main__":
    main(sys.argv[-2], sys.argv[-1])

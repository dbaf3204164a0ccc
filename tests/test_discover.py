"""Operators found in existing C++ and Python sources."""

from __future__ import annotations

import pytest

from kernelgen import discover, schema


def schemas(operators: list[discover.Operator]) -> list[str | None]:
    for operator in operators:
        if operator.schema:
            schema.parse(operator.schema)
    return [operator.schema for operator in operators]


def test_registrations_in_cpp() -> None:
    text = r"""
// ops.def("commented(Tensor x) -> Tensor");
/* ops.def("out(Tensor x)
   -> Tensor"); */
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("plain(Tensor! out, Tensor input) -> ()");
  ops.impl("plain", torch::kCUDA, &plain);
  ops.def(
      "split(Tensor x, // no comment in here
      "
  );
  ops.def("joined(Tensor x, "
          "float eps=1e-5) "   // the second half
          "-> Tensor");
  ops.def(R"(raw(Tensor q, Tensor k,
              *, str mode="a//b") -> (Tensor, Tensor))");
  ops.def(TORCH_SELECTIVE_SCHEMA("other_ns::wrapped(Tensor x) -> Tensor"));
  ops.def(torch::schema("tagged(Tensor x) -> Tensor", c10::AliasAnalysisKind::PURE_FUNCTION));
  m->def("pointer(Tensor x) -> Tensor");
}
""".replace(
        """  ops.def(
      "split(Tensor x, // no comment in here
      "
  );
""",
        "",
    )
    found = discover.cpp_operators(text)
    assert [operator.schema for operator in found] == [
        "plain(Tensor! out, Tensor input) -> ()",
        "joined(Tensor x, float eps=1e-5) -> Tensor",
        'raw(Tensor q, Tensor k, *, str mode="a//b") -> (Tensor, Tensor)',
        "other_ns::wrapped(Tensor x) -> Tensor",
        "tagged(Tensor x) -> Tensor",
        "pointer(Tensor x) -> Tensor",
    ]
    assert [operator.name for operator in found] == ["plain", "joined", "raw", "wrapped", "tagged", "pointer"]
    assert [operator.line for operator in found] == [6, 8, 11, 13, 14, 15]


def test_functions_registered_without_a_schema() -> None:
    binding = """\
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &lltm_forward, "forward (CUDA)");
  m.def("scale_", &scale_);
  m.def("pair", TORCH_FN(ns::pair));
  m.def("odd", &odd);
  m.def("lost", &nowhere);
  m.def("inline", [](torch::Tensor x) { return x; });
}
"""
    source = """\
std::vector<at::Tensor> lltm_forward(
    const torch::Tensor& input, torch::Tensor weights, c10::optional<at::Tensor> bias,
    int64_t n, double eps = 1e-5) {
  return {};
}
void scale_(torch::Tensor& x, const at::Tensor& by);
static inline std::tuple<at::Tensor, torch::Tensor> pair(at::Tensor x, at::IntArrayRef size, bool flag) {
}
Mystery odd(at::Tensor x) {}
"""
    found = discover.cpp_operators(binding, (source,))
    assert schemas(found) == [
        "forward(Tensor input, Tensor weights, Tensor? bias, int n, float eps) -> Tensor[]",
        "scale_(Tensor! x, Tensor by) -> ()",
        "pair(Tensor x, int[] size, bool flag) -> (Tensor, Tensor)",
        None,
        None,
        None,
    ]
    assert [operator.reason for operator in found[2:]] == [
        "inferred from the C++ signature of pair",
        "odd has a type that no schema has: Mystery",
        "registered without a schema, and the signature of nowhere was not found",
        "registered without a schema and without a plain function",
    ]


def test_python_operators() -> None:
    text = """
import torch
from typing import List, Optional, Tuple
from ._ops import add_op_namespace_prefix

@torch.library.custom_op(add_op_namespace_prefix("scale"), mutates_args={"out"})
def _scale(
    out: torch.Tensor, x: torch.Tensor, by: float = 2.0, *, mode: str = "fast", n: int | None = None
) -> None: ...

@torch.library.triton_op("ns::pair", mutates_args=())
def _pair(
    xs: List[torch.Tensor], bias: Optional[torch.Tensor] = None, dims: tuple = ()
) -> Tuple[torch.Tensor, torch.Tensor]: ...

@custom_op("ns::given", mutates_args=(), schema="(Tensor x) -> Tensor")
def _given(x):
    ...

@torch.library.custom_op("ns::two", mutates_args=[])
def _two(x: "torch.Tensor", flag: bool = True) -> tuple[torch.Tensor, torch.Tensor]: ...

@torch.library.custom_op(NAME, mutates_args=())
def _dynamic(x: torch.Tensor) -> torch.Tensor: ...

torch.library.define("ns::defined", "(Tensor x, int n=1) -> Tensor")
lib = torch.library.Library("ns", "DEF")
lib.define("lib_defined(Tensor x) -> Tensor")
"""
    found = discover.python_operators(text)
    assert schemas(found) == [
        'scale(Tensor! out, Tensor x, float by=2.0, *, str mode="fast", int? n=None) -> ()',
        None,
        "given(Tensor x) -> Tensor",
        "two(Tensor x, bool flag=True) -> (Tensor, Tensor)",
        None,
        "defined(Tensor x, int n=1) -> Tensor",
        "lib_defined(Tensor x) -> Tensor",
    ]
    assert found[1].reason == "the annotation of dims has no schema"
    assert found[4].reason == "its name is not a plain string"


@pytest.mark.parametrize("text", ["", "def f(:", 'm.def("unfinished'])
def test_nonsense_is_no_operator(text: str) -> None:
    assert discover.cpp_operators(text) == []
    assert all(operator.schema is None for operator in discover.python_operators(text))

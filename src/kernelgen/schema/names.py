"""Names that an operator, an overload or an argument cannot have, each with the reason.

An operator's name becomes a C++ function, a CUDA kernel, a Python function and the name of a file in the
generated project; an argument's name becomes a parameter in C++ and in Python. So a name must be free in all
of them.
"""

from __future__ import annotations

import re
import sys

_PYTHON = """
    False None True and as assert async await break class continue def del elif else except finally
    for from global if import in is lambda nonlocal not or pass raise return try while with yield
"""
# Words that PyTorch's schema reader (torch/csrc/jit/frontend/lexer.h) keeps beside Python's keywords.
_SCHEMA = "Ellipsis NoneType"
# C++20 with its alternative operators, and what is on its way in.
_CPP = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue contract_assert decltype default delete do double dynamic_cast else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new
    noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
    requires return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename typeof union unsigned using virtual void
    volatile wchar_t while xor xor_eq
"""
_CUDA = "blockDim blockIdx dim3 gridDim threadIdx warpSize cudaError_t cudaStream_t"
# Macros of the C and C++ headers and of g++'s GNU dialect that are not written in capitals.
_MACROS = """
    alloca assert assert_perror be16toh be32toh be64toh errno htobe16 htobe32 htobe64 htole16 htole32
    htole64 isascii issubnormal le16toh le32toh le64toh linux major makedev math_errhandling minor
    offsetof sa_handler sa_sigaction sched_priority setjmp sigev_notify_attributes
    sigev_notify_function sigmask sigsetjmp stderr stdin stdout strdupa strndupa timeradd timerclear
    timercmp timerisset timersub toascii unix va_arg va_copy va_end va_start
"""
_MACRO_SHAPES = re.compile(
    r"""E[A-Z0-9]{2,} | SIG[A-Z0-9]+ | W(CONT|EOF|EXIT|IF|NO|STOP|TERM|UN)[A-Z]* | S?NAN[A-Z0-9]*
    | BUFSIZ | CHECK | CSIGNAL | CUDARTAPI | DCHECK | DLOG | INFINITY | LOG | MAXFLOAT | MINSIGSTKSZ
    | NFDBITS | NGREG | NSIG | NULL | NZERO | VLOG | MaxTypeIndex
    | [A-Z][A-Z0-9]*(_[A-Z0-9]+)+_? | (SYS|C10|TORCH|NV)_\w+ | M_\w+[flx\d]
    | [LP]_(ctermid|cuserid|tmpdir|tmpnam)
    | si_(addr|addr_lsb|arch|band|call_addr|fd|int|lower|overrun|pid|pkey|ptr|status|stime|syscall)
    | si_(timerid|uid|upper|utime|value) | is[a-z]+_l | toascii_l | pthread_\w+""",
    re.VERBOSE,
)
_CUDA_SHAPES = re.compile(r"cuda[A-Z]\w*|NV_\w+")
_CPP_NAMES = "int8_t int16_t int32_t int64_t size_t uint8_t uint16_t uint32_t uint64_t"
_TYPES_OF_SCALAR_H = "BFloat16 Half"

# csrc/ is on the include path, so that csrc/math.h would be found for <math.h>. These are the headers
# that a compiler may look for in the standard library, in PyTorch and in CUDA, without their ".h".
_HEADERS = """
    adxintrin alloca assert builtin_types channel_descriptor clog common_functions complex cpuid
    cpuinfo ctype cublas cuda cudnn cufft curand cusolver cusparse device_atomic_functions
    device_double_functions device_functions device_launch_parameters device_types dlfcn
    driver_functions driver_types endian errno features fenv float fp16 fxdiv host_config
    host_defines inttypes iso646 libintl libshm library_types limits locale malloc math
    math_constants math_functions memory mm3dnow mm_malloc nccl nnpack nvrtc nvtx3 omp psimd pthread
    pthreadpool quadmath sched semaphore setjmp signal sleef stdalign stdarg stdatomic stdbool
    stddef stdint stdio stdlib stdnoreturn string strings surface_indirect_functions surface_types
    syscall syslimits texture_indirect_functions texture_types tgmath threads time uchar unistd
    unwind vector_functions vector_types wchar wctype xnnpack
"""
_HEADER_SHAPES = re.compile(r"\w*intrin|cuda_\w+|cooperative_groups\w*|sm_\d+_\w+")

# What a generated Python module calls by name: a parameter or a function of that name would hide it.
_PYTHON_USED = "Any Callable Sequence add_op_namespace_prefix bool ops torch"
_PYTHON_TYPES = "bool dict list str tuple zip"

_FILES = {
    "layers": "the package's `layers` module",
    "ops": "the package's `ops` object",
    "scalar": "csrc/scalar.h",
    "torch_binding": "torch-ext/torch_binding.cpp",
    "registration": "the builder's registration.h",
    "kernels": "the `kernels` package",
    "nn": "`torch.nn` in the generated layers",
}
_NAMESPACE = {
    # torch.ops.<namespace>.name is the namespace's own name.
    "name": "an attribute of every `torch.ops` namespace",
}
# Attributes of torch._ops.OpOverloadPacket, where an overload is looked up.
_OVERLOADS = "default op op_overloads overloads"


def _words(text: str, reason: str) -> dict[str, str]:
    return dict.fromkeys(text.split(), reason)


_EVERYWHERE = {
    **_words(_CPP_NAMES, "a type of C++ that generated code uses"),
    **_words(_MACROS, "a macro of the C headers"),
    **_words(_CUDA, "a name of CUDA"),
    **_words(_SCHEMA, "a word of PyTorch's schema language"),
    **_words(_PYTHON_USED, "a name that the generated Python uses"),
    **_words(_CPP, "a keyword of C++"),
    **_words(_PYTHON, "a keyword of Python"),
}
_OPERATORS = {
    **_words(_HEADERS, "the name of a header of the compiler, PyTorch or CUDA"),
    **_words("main", "the entry point of a program"),
    **_words(_TYPES_OF_SCALAR_H, "a type of csrc/scalar.h"),
    **_words(_PYTHON_TYPES, "a type of Python that generated code uses"),
    **{word: f"the name of {thing}" for word, thing in _FILES.items()},
    **_NAMESPACE,
}
# The package's name is also that of its C++ namespace.
_PACKAGES = {
    **_words("cpu cuda scalar", "a namespace within the generated C++"),
    **_words(
        "at c10 kernelgen kernels ninja numpy pytest std tests torch triton",
        "a namespace of C++ or a package that is used beside it",
    ),
}


def _reserved_shape(name: str) -> str | None:
    if "__" in name:
        return "reserved in C++ for its two underscores in a row"
    if re.match(r"_[A-Z]", name):
        return "reserved in C++, because it begins with an underscore and a capital"
    if name == "_":
        return "not a name that anyone could pass by keyword"
    if _MACRO_SHAPES.fullmatch(name):
        return "a macro of the C headers or of PyTorch, or written like one"
    if _CUDA_SHAPES.fullmatch(name):
        return "a name of CUDA, or written like one"
    return None


def _too_long(name: str) -> str:
    return f"{len(name)} characters long, and files are named after it: {LONGEST_OPERATOR} are the limit"


def why_not_kernel(name: str) -> str | None:
    """Say why a kernel's Python package cannot be called `name`, as the end of a sentence; None if it can."""
    if name in sys.stdlib_module_names:
        return "a module of Python's standard library"
    return _EVERYWHERE.get(name) or _PACKAGES.get(name) or _reserved_shape(name)


def why_not_argument(name: str) -> str | None:
    """Say why an argument or a return cannot be called `name`, as the end of a sentence; None if it can."""
    return _EVERYWHERE.get(name) or _reserved_shape(name)


# A file name has 255 bytes at most: this leaves room for an operator, its overload, `_backward` and endings.
# copier.yml holds it too.
LONGEST_OPERATOR = 100


def why_not_operator(name: str) -> str | None:
    """Say why an operator cannot be called `name`, as the end of a sentence; None if it can."""
    if len(name) > LONGEST_OPERATOR:
        return _too_long(name)
    if name.startswith("_"):
        return "not public, because it begins with an underscore"
    if _HEADER_SHAPES.fullmatch(name):
        return _OPERATORS["math"]
    return _EVERYWHERE.get(name) or _OPERATORS.get(name) or _reserved_shape(name)


def why_not_overload(name: str) -> str | None:
    """Say why an overload cannot be called `name`, as the end of a sentence; None if it can."""
    if name in _OVERLOADS.split():
        return "an attribute of every operator in `torch.ops`"
    if len(name) > LONGEST_OPERATOR:
        return _too_long(name)
    if name.startswith("_"):
        return "private, because it begins with an underscore"
    return {
        **_words(_SCHEMA, "a word of PyTorch's schema language"),
        **_words(_PYTHON, "a keyword of Python"),
    }.get(name)

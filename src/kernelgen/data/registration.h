// Made by kernelgen for each build, under the name and with the macros of kernel-builder's header.
#pragma once

#define KERNELGEN_JOIN_(left, right) left##right
#define KERNELGEN_JOIN(left, right) KERNELGEN_JOIN_(left, right)
#define KERNELGEN_TEXT_(token) #token
#define KERNELGEN_TEXT(token) KERNELGEN_TEXT_(token)

#ifndef CONCAT
#define CONCAT(left, right) KERNELGEN_JOIN(left, right)
#endif
#ifndef STRINGIFY
#define STRINGIFY(token) KERNELGEN_TEXT(token)
#endif

// `kernelgen build --namespace` registers operators under a name of its own, for development.
#ifdef KERNELGEN_NAMESPACE
#define KERNELGEN_LIBRARY(NAME) KERNELGEN_NAMESPACE
#else
#define KERNELGEN_LIBRARY(NAME) NAME
#endif

// torch's macros paste the namespace as it is written; these expand it first, so that it may be a macro.
#define KERNELGEN_DEFINE(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
#define KERNELGEN_IMPLEMENT(NAME, KEY, MODULE) TORCH_LIBRARY_IMPL(NAME, KEY, MODULE)
#define KERNELGEN_STABLE_DEFINE(NAME, MODULE) STABLE_TORCH_LIBRARY(NAME, MODULE)
#define KERNELGEN_STABLE_IMPLEMENT(NAME, KEY, MODULE) STABLE_TORCH_LIBRARY_IMPL(NAME, KEY, MODULE)

#define TORCH_LIBRARY_EXPAND(NAME, MODULE) KERNELGEN_DEFINE(KERNELGEN_LIBRARY(NAME), MODULE)
#define TORCH_LIBRARY_IMPL_EXPAND(NAME, KEY, MODULE) KERNELGEN_IMPLEMENT(KERNELGEN_LIBRARY(NAME), KEY, MODULE)
#define STABLE_TORCH_LIBRARY_EXPAND(NAME, MODULE) KERNELGEN_STABLE_DEFINE(KERNELGEN_LIBRARY(NAME), MODULE)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(NAME, KEY, MODULE) \
  KERNELGEN_STABLE_IMPLEMENT(KERNELGEN_LIBRARY(NAME), KEY, MODULE)

// `import NAME` loads the library, and its registrations run; the module itself is empty.
#if __has_include(<Python.h>)

#include <Python.h>

#define REGISTER_EXTENSION(NAME)                                                                           \
  PyMODINIT_FUNC KERNELGEN_JOIN(PyInit_, NAME)() {                                                         \
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, KERNELGEN_TEXT(NAME), nullptr, 0, nullptr,     \
                                     nullptr,               nullptr,              nullptr, nullptr};       \
    return PyModule_Create(&definition);                                                                   \
  }

#else  // Python's headers are not installed: its stable ABI is declared here as far as an empty module needs it

#include <cstddef>
#include <cstdint>

extern "C" {
struct _object;
struct kernelgen_module_definition {
  struct {
    std::intptr_t references;
    void *type;
    _object *(*init)();
    std::ptrdiff_t index;
    _object *copy;
  } base;
  const char *name;
  const char *doc;
  std::ptrdiff_t size;
  void *methods, *slots, *traverse, *clear, *free;
};
_object *PyModule_Create2(kernelgen_module_definition *, int);
}

#define REGISTER_EXTENSION(NAME)                                                                           \
  extern "C" __attribute__((visibility("default"))) _object *KERNELGEN_JOIN(PyInit_, NAME)() {             \
    static kernelgen_module_definition definition = {                                                      \
        {1, nullptr, nullptr, 0, nullptr}, KERNELGEN_TEXT(NAME), nullptr, 0, nullptr, nullptr, nullptr,    \
        nullptr, nullptr};                                                                                 \
    return PyModule_Create2(&definition, 3);                                                               \
  }

#endif

// Preloaded into nvcc, which names device symbols of internal linkage after the absolute path of the source:
// two directories would give two objects. For nvcc alone, a relative path stays what it is.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *realpath(const char *path, char *resolved) {
  if (path != NULL && path[0] != '/' && strcmp(program_invocation_short_name, "nvcc") == 0) {
    if (resolved == NULL) resolved = malloc(PATH_MAX);
    if (resolved != NULL) snprintf(resolved, PATH_MAX, "/%s", path);
    return resolved;
  }
  char *(*next)(const char *, char *) = (char *(*)(const char *, char *))dlsym(RTLD_NEXT, "realpath");
  return next(path, resolved);
}

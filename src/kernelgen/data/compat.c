// What newer glibc headers make an object refer to, expressed in symbols that manylinux_2_28 has. Compiled
// once per PART into an archive that is linked before libc: only what an object needs is taken, and the
// extension's version script hides it.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>

#if defined(__x86_64__)
#define BASE "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define BASE "GLIBC_2.17"
#endif
// An old version of a symbol under another name.
#define OLD(name, version) __asm__(".symver kernelgen_old_" #name "," #name "@" version)

#if defined(PART_libc_single_threaded)
// glibc 2.32 tells by it that no locks are needed; 0 is always right.
char __libc_single_threaded = 0;

#elif defined(PART_exp) || defined(PART_exp2) || defined(PART_log) || defined(PART_log2)
#define FUNCTION2(name)                   \
  OLD(name, BASE);                        \
  double kernelgen_old_##name(double);    \
  double name(double x) { return kernelgen_old_##name(x); }
#if defined(PART_exp)
FUNCTION2(exp)
#elif defined(PART_exp2)
FUNCTION2(exp2)
#elif defined(PART_log)
FUNCTION2(log)
#else
FUNCTION2(log2)
#endif

#elif defined(PART_pow)
OLD(pow, BASE);
double kernelgen_old_pow(double, double);
double pow(double x, double y) { return kernelgen_old_pow(x, y); }
#elif defined(PART_fmod)
OLD(fmod, BASE);
double kernelgen_old_fmod(double, double);
double fmod(double x, double y) { return kernelgen_old_fmod(x, y); }
#elif defined(PART_fmodf)
OLD(fmodf, BASE);
float kernelgen_old_fmodf(float, float);
float fmodf(float x, float y) { return kernelgen_old_fmodf(x, y); }
#elif defined(PART_hypot)
OLD(hypot, BASE);
double kernelgen_old_hypot(double, double);
double hypot(double x, double y) { return kernelgen_old_hypot(x, y); }
#elif defined(PART_hypotf)
OLD(hypotf, BASE);
float kernelgen_old_hypotf(float, float);
float hypotf(float x, float y) { return kernelgen_old_hypotf(x, y); }

// C23's strtol and its kin, from glibc 2.38 on: the older ones differ in the prefix 0b alone.
#elif defined(PART_isoc23_strtol)
long strtol(const char *, char **, int);
long __isoc23_strtol(const char *s, char **end, int base) { return strtol(s, end, base); }
#elif defined(PART_isoc23_strtoul)
unsigned long strtoul(const char *, char **, int);
unsigned long __isoc23_strtoul(const char *s, char **end, int base) { return strtoul(s, end, base); }
#elif defined(PART_isoc23_strtoll)
long long strtoll(const char *, char **, int);
long long __isoc23_strtoll(const char *s, char **end, int base) { return strtoll(s, end, base); }
#elif defined(PART_isoc23_strtoull)
unsigned long long strtoull(const char *, char **, int);
unsigned long long __isoc23_strtoull(const char *s, char **end, int base) { return strtoull(s, end, base); }
#elif defined(PART_isoc23_sscanf)
int vsscanf(const char *, const char *, va_list);
int __isoc23_sscanf(const char *s, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int count = vsscanf(s, format, arguments);
  va_end(arguments);
  return count;
}

// libpthread and libdl became part of libc in glibc 2.34, which gave their symbols new versions.
#elif defined(PART_pthread_create)
OLD(pthread_create, BASE);
int kernelgen_old_pthread_create(void *, const void *, void *(*)(void *), void *);
int pthread_create(void *thread, const void *options, void *(*start)(void *), void *argument) {
  return kernelgen_old_pthread_create(thread, options, start, argument);
}
#elif defined(PART_pthread_join)
OLD(pthread_join, BASE);
int kernelgen_old_pthread_join(unsigned long, void **);
int pthread_join(unsigned long thread, void **result) { return kernelgen_old_pthread_join(thread, result); }
#elif defined(PART_pthread_detach)
OLD(pthread_detach, BASE);
int kernelgen_old_pthread_detach(unsigned long);
int pthread_detach(unsigned long thread) { return kernelgen_old_pthread_detach(thread); }
#elif defined(PART_pthread_once)
OLD(pthread_once, BASE);
int kernelgen_old_pthread_once(int *, void (*)(void));
int pthread_once(int *control, void (*run)(void)) { return kernelgen_old_pthread_once(control, run); }
#elif defined(PART_pthread_key_create)
OLD(pthread_key_create, BASE);
int kernelgen_old_pthread_key_create(unsigned *, void (*)(void *));
int pthread_key_create(unsigned *key, void (*drop)(void *)) { return kernelgen_old_pthread_key_create(key, drop); }
#elif defined(PART_pthread_key_delete)
OLD(pthread_key_delete, BASE);
int kernelgen_old_pthread_key_delete(unsigned);
int pthread_key_delete(unsigned key) { return kernelgen_old_pthread_key_delete(key); }
#elif defined(PART_pthread_getspecific)
OLD(pthread_getspecific, BASE);
void *kernelgen_old_pthread_getspecific(unsigned);
void *pthread_getspecific(unsigned key) { return kernelgen_old_pthread_getspecific(key); }
#elif defined(PART_pthread_setspecific)
OLD(pthread_setspecific, BASE);
int kernelgen_old_pthread_setspecific(unsigned, const void *);
int pthread_setspecific(unsigned key, const void *value) { return kernelgen_old_pthread_setspecific(key, value); }
#elif defined(PART_pthread_rwlock_rdlock)
OLD(pthread_rwlock_rdlock, BASE);
int kernelgen_old_pthread_rwlock_rdlock(void *);
int pthread_rwlock_rdlock(void *lock) { return kernelgen_old_pthread_rwlock_rdlock(lock); }
#elif defined(PART_pthread_rwlock_wrlock)
OLD(pthread_rwlock_wrlock, BASE);
int kernelgen_old_pthread_rwlock_wrlock(void *);
int pthread_rwlock_wrlock(void *lock) { return kernelgen_old_pthread_rwlock_wrlock(lock); }
#elif defined(PART_pthread_rwlock_unlock)
OLD(pthread_rwlock_unlock, BASE);
int kernelgen_old_pthread_rwlock_unlock(void *);
int pthread_rwlock_unlock(void *lock) { return kernelgen_old_pthread_rwlock_unlock(lock); }
#elif defined(PART_pthread_mutex_trylock)
OLD(pthread_mutex_trylock, BASE);
int kernelgen_old_pthread_mutex_trylock(void *);
int pthread_mutex_trylock(void *lock) { return kernelgen_old_pthread_mutex_trylock(lock); }
#elif defined(PART_dlopen)
OLD(dlopen, BASE);
void *kernelgen_old_dlopen(const char *, int);
void *dlopen(const char *path, int mode) { return kernelgen_old_dlopen(path, mode); }
#elif defined(PART_dlsym)
OLD(dlsym, BASE);
void *kernelgen_old_dlsym(void *, const char *);
void *dlsym(void *handle, const char *name) { return kernelgen_old_dlsym(handle, name); }
#elif defined(PART_dlclose)
OLD(dlclose, BASE);
int kernelgen_old_dlclose(void *);
int dlclose(void *handle) { return kernelgen_old_dlclose(handle); }
#elif defined(PART_dlerror)
OLD(dlerror, BASE);
char *kernelgen_old_dlerror(void);
char *dlerror(void) { return kernelgen_old_dlerror(); }
#elif defined(PART_dladdr)
OLD(dladdr, BASE);
int kernelgen_old_dladdr(const void *, void *);
int dladdr(const void *address, void *info) { return kernelgen_old_dladdr(address, info); }

// glibc 2.33 made functions of what had been inline calls of versioned ones.
#elif defined(PART_stat)
int __xstat(int, const char *, void *);
int stat(const char *path, void *out) { return __xstat(1, path, out); }
#elif defined(PART_fstat)
int __fxstat(int, int, void *);
int fstat(int file, void *out) { return __fxstat(1, file, out); }
#elif defined(PART_lstat)
int __lxstat(int, const char *, void *);
int lstat(const char *path, void *out) { return __lxstat(1, path, out); }
#endif

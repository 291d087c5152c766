// A library that is preloaded and stands between a program and the C library: it counts the calls about files below a
// folder, and makes one of them fail (faults.h).
#include <atomic>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "faults.h"
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

using nought::test::FaultHow;
using nought::test::FaultKind;
using nought::test::kFaultHows;

/// What the environment asks for.
struct Orders {
  std::string root;
  long at = 0;
  const FaultHow* how = nullptr;
  int log = -1;
};

Orders read_orders() {
  Orders orders;
  const char *root = std::getenv("FAULTS_ROOT"), *at = std::getenv("FAULTS_AT"), *how = std::getenv("FAULTS_HOW");
  const char* log = std::getenv("FAULTS_LOG");
  if (root != nullptr) orders.root = std::string(root) + "/";
  if (at != nullptr) orders.at = std::atol(at);
  for (const FaultHow& each : kFaultHows)
    if (how != nullptr && each.name == how) orders.how = &each;
  if (log != nullptr)
    orders.log = static_cast<int>(syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  return orders;
}

const Orders& orders() {
  static const Orders orders = read_orders();
  return orders;
}

std::string path_of(int descriptor) {
  std::string link = "/proc/self/fd/" + std::to_string(descriptor), path(PATH_MAX, '\0');
  const long size = syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), path.data(), path.size());
  return path.substr(0, size > 0 ? static_cast<size_t>(size) : 0);
}

std::string path_in(int folder, const char* path) {
  if (path[0] == '/') return path;
  return (folder == AT_FDCWD ? std::string(".") : path_of(folder)) + "/" + path;
}

std::atomic<long> calls = 0;

/// Counts a call. The fault that befalls it, if any does.
const FaultHow* counted(const char* name, const std::string& path) {
  const Orders& now = orders();
  if (now.root.empty() || (path + "/").compare(0, now.root.size(), now.root) != 0) return nullptr;
  const long number = ++calls;
  const std::string line = std::string(name) + " " + path + "\n";
  if (now.log >= 0) syscall(SYS_write, now.log, line.data(), line.size());
  if (now.how == nullptr || now.at == 0 || !may_befall(*now.how, name)) return nullptr;
  const bool due = number == now.at || (number > now.at && now.how->kind == FaultKind::lasting_error);
  return due ? now.how : nullptr;
}

[[noreturn]] void crash() {
  syscall(SYS_exit_group, nought::test::kFaultCrash);
  __builtin_unreachable();
}

/// Runs a call, or what befalls it. `run` is the call itself, `failed` what it returns when it fails. What gives
/// something back, as close() does, is run before it fails: the system has done it then too.
template <class Run>
auto with_fault(const FaultHow* fault, const Run& run, decltype(run()) failed, bool gives_back = false) {
  if (fault == nullptr || fault->kind == FaultKind::short_write) return run();
  if (fault->kind == FaultKind::crash_before) crash();
  if (fault->kind == FaultKind::crash_after) {
    run();
    crash();
  }
  if (gives_back) run();
  errno = fault->error;
  return failed;
}

/// How much of `size` a write takes.
size_t taken(const FaultHow* fault, size_t size) {
  return fault != nullptr && fault->kind == FaultKind::short_write && size > 1 ? size / 2 : size;
}

/// The C library's own function.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

template <class Run>
int removed(const std::string& path, const Run& run) {
  return with_fault(counted("remove", path), run, -1);
}

template <class Run>
int renamed(const std::string& to, const Run& run) {
  return with_fault(counted("rename", to), run, -1);
}

int opened(const char* function, int folder, const char* path, int flags, mode_t mode) {
  const FaultHow* fault = counted((flags & O_CREAT) != 0 ? "create" : "open", path_in(folder, path));
  return with_fault(
      fault, [&] { return next<int(int, const char*, int, ...)>(function)(folder, path, flags, mode); }, -1);
}

FILE* opened(const char* function, const char* path, const char* mode) {
  const FaultHow* fault = counted(mode[0] == 'r' ? "open" : "create", path_in(AT_FDCWD, path));
  return with_fault(
      fault, [&] { return next<FILE*(const char*, const char*)>(function)(path, mode); }, static_cast<FILE*>(nullptr));
}

template <class Offset>
ssize_t read_at(const char* function, int descriptor, void* bytes, size_t size, Offset offset) {
  const auto run = [&] { return next<ssize_t(int, void*, size_t, Offset)>(function)(descriptor, bytes, size, offset); };
  return with_fault(counted("read", path_of(descriptor)), run, ssize_t{-1});
}

template <class Offset>
ssize_t written_at(const char* function, int descriptor, const void* bytes, size_t size, Offset offset) {
  const FaultHow* fault = counted("pwrite", path_of(descriptor));
  const auto run = [&] {
    return next<ssize_t(int, const void*, size_t, Offset)>(function)(descriptor, bytes, taken(fault, size), offset);
  };
  return with_fault(fault, run, ssize_t{-1});
}

template <class Offset>
int truncated(const char* function, int descriptor, Offset size) {
  return with_fault(
      counted("ftruncate", path_of(descriptor)), [&] { return next<int(int, Offset)>(function)(descriptor, size); },
      -1);
}

/// The mode of an open() that may make a file.
#define FAULTS_MODE(flags)                                          \
  mode_t mode = 0;                                                  \
  if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) { \
    va_list arguments;                                              \
    va_start(arguments, flags);                                     \
    mode = va_arg(arguments, mode_t);                               \
    va_end(arguments);                                              \
  }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  FAULTS_MODE(flags)
  return opened("openat", AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  FAULTS_MODE(flags)
  return opened("openat64", AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  FAULTS_MODE(flags)
  return opened("openat", folder, path, flags, mode);
}

int openat64(int folder, const char* path, int flags, ...) {
  FAULTS_MODE(flags)
  return opened("openat64", folder, path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) { return opened("fopen", path, mode); }
FILE* fopen64(const char* path, const char* mode) { return opened("fopen64", path, mode); }

int fclose(FILE* file) {
  const FaultHow* fault = counted("close", path_of(fileno(file)));
  return with_fault(
      fault, [&] { return next<int(FILE*)>("fclose")(file); }, EOF, /*gives_back=*/true);
}

int close(int descriptor) {
  const FaultHow* fault = counted("close", path_of(descriptor));
  return with_fault(
      fault, [&] { return next<int(int)>("close")(descriptor); }, -1, /*gives_back=*/true);
}

ssize_t read(int descriptor, void* bytes, size_t size) {
  return with_fault(
      counted("read", path_of(descriptor)),
      [&] { return next<ssize_t(int, void*, size_t)>("read")(descriptor, bytes, size); }, ssize_t{-1});
}

ssize_t pread(int descriptor, void* bytes, size_t size, off_t offset) {
  return read_at("pread", descriptor, bytes, size, offset);
}

ssize_t pread64(int descriptor, void* bytes, size_t size, off64_t offset) {
  return read_at("pread64", descriptor, bytes, size, offset);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  const FaultHow* fault = counted("write", path_of(descriptor));
  const auto run = [&] {
    return next<ssize_t(int, const void*, size_t)>("write")(descriptor, bytes, taken(fault, size));
  };
  return with_fault(fault, run, ssize_t{-1});
}

ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  return with_fault(
      counted("writev", path_of(descriptor)),
      [&] { return next<ssize_t(int, const struct iovec*, int)>("writev")(descriptor, parts, count); }, ssize_t{-1});
}

ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  return written_at("pwrite", descriptor, bytes, size, offset);
}

ssize_t pwrite64(int descriptor, const void* bytes, size_t size, off64_t offset) {
  return written_at("pwrite64", descriptor, bytes, size, offset);
}

int fsync(int descriptor) {
  return with_fault(
      counted("fsync", path_of(descriptor)), [&] { return next<int(int)>("fsync")(descriptor); }, -1);
}

int fdatasync(int descriptor) {
  return with_fault(
      counted("fsync", path_of(descriptor)), [&] { return next<int(int)>("fdatasync")(descriptor); }, -1);
}

int ftruncate(int descriptor, off_t size) noexcept { return truncated("ftruncate", descriptor, size); }
int ftruncate64(int descriptor, off64_t size) noexcept { return truncated("ftruncate64", descriptor, size); }

int rename(const char* from, const char* to) noexcept {
  return renamed(path_in(AT_FDCWD, to), [&] { return next<int(const char*, const char*)>("rename")(from, to); });
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return renamed(path_in(to_folder, to), [&] {
    return next<int(int, const char*, int, const char*)>("renameat")(from_folder, from, to_folder, to);
  });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return renamed(path_in(to_folder, to), [&] {
    return next<int(int, const char*, int, const char*, unsigned)>("renameat2")(from_folder, from, to_folder, to,
                                                                                flags);
  });
}

int mkdir(const char* path, mode_t mode) noexcept {
  return with_fault(
      counted("mkdir", path_in(AT_FDCWD, path)), [&] { return next<int(const char*, mode_t)>("mkdir")(path, mode); },
      -1);
}

int unlink(const char* path) noexcept {
  return removed(path_in(AT_FDCWD, path), [&] { return next<int(const char*)>("unlink")(path); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  return removed(path_in(folder, path),
                 [&] { return next<int(int, const char*, int)>("unlinkat")(folder, path, flags); });
}

int rmdir(const char* path) noexcept {
  return removed(path_in(AT_FDCWD, path), [&] { return next<int(const char*)>("rmdir")(path); });
}

int remove(const char* path) noexcept {
  return removed(path_in(AT_FDCWD, path), [&] { return next<int(const char*)>("remove")(path); });
}

DIR* opendir(const char* path) {
  return with_fault(
      counted("open", path_in(AT_FDCWD, path)), [&] { return next<DIR*(const char*)>("opendir")(path); },
      static_cast<DIR*>(nullptr));
}

}  // extern "C"

#include "support/recorded_calls.h"

#include <cerrno>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>

#include "support/temp_folder.h"
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/file.h>

namespace nought::test {

namespace {

struct Record {
  std::vector<RecordedCall> calls;
  std::map<std::string, int> failures;  // of the next call of a name
};

std::mutex mutex;
std::optional<Record> record;

/// Puts the call on record. The error that it must report, or 0.
int note(RecordedCall call) {
  const std::lock_guard lock(mutex);
  if (!record) return 0;
  const auto failure = record->failures.find(call.name);
  const int error = failure == record->failures.end() ? 0 : failure->second;
  if (error != 0) record->failures.erase(failure);
  record->calls.push_back(std::move(call));
  return error;
}

std::filesystem::path path_of(int descriptor) {
  std::error_code error;
  return std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", descriptor), error);
}

bool recording() {
  const std::lock_guard lock(mutex);
  return record.has_value();
}

/// Unless somebody records, nothing is read: a checkpoint takes longer to read than to write.
RecordedCall fsync_of(int descriptor) {
  if (!recording()) return {"fsync", {}};
  std::error_code error;
  RecordedCall call{"fsync", path_of(descriptor)};
  if (std::filesystem::is_regular_file(call.path, error)) call.bytes = read_bytes(call.path);
  return call;
}

/// The C library's own function.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

RecordedCalls::RecordedCalls() {
  const std::lock_guard lock(mutex);
  record.emplace();
}

RecordedCalls::~RecordedCalls() {
  const std::lock_guard lock(mutex);
  record.reset();
}

std::vector<RecordedCall> RecordedCalls::calls() const {
  const std::lock_guard lock(mutex);
  return record->calls;
}

void RecordedCalls::fail_next(const std::string& name, int error) {
  const std::lock_guard lock(mutex);
  record->failures[name] = error;
}

}  // namespace nought::test

extern "C" int fsync(int descriptor) {
  if (const int error = nought::test::note(nought::test::fsync_of(descriptor)); error != 0) {
    errno = error;
    return -1;
  }
  return nought::test::next<int(int)>("fsync")(descriptor);
}

extern "C" int remove(const char* path) noexcept {
  if (const int error = nought::test::note({"remove", path}); error != 0) {
    errno = error;
    return -1;
  }
  return nought::test::next<int(const char*)>("remove")(path);
}

extern "C" int flock(int descriptor, int operation) noexcept {
  if (const int error = nought::test::note({"flock", nought::test::path_of(descriptor)}); error != 0) {
    errno = error;
    return -1;
  }
  return nought::test::next<int(int, int)>("flock")(descriptor, operation);
}

extern "C" int rename(const char* from, const char* to) noexcept {
  if (const int error = nought::test::note({"rename", to}); error != 0) {
    errno = error;
    return -1;
  }
  return nought::test::next<int(const char*, const char*)>("rename")(from, to);
}

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  const char* name = flags == RENAME_EXCHANGE ? "exchange" : "renameat2";
  if (const int error = nought::test::note({name, to}); error != 0) {
    errno = error;
    return -1;
  }
  return nought::test::next<int(int, const char*, int, const char*, unsigned)>("renameat2")(from_folder, from,
                                                                                            to_folder, to, flags);
}

// What the shim can do to a system call, and to which calls: shared by the shim and the tests that preload it.
//
// The shim counts the calls that concern files below the folder FAULTS_ROOT and writes each to FAULTS_LOG, a line
// "NAME PATH". At call number FAULTS_AT (from 1; 0: never) it does what FAULTS_HOW names.
#pragma once

#include <array>
#include <cerrno>
#include <string_view>

namespace nought::test {

enum class FaultKind { error, lasting_error, short_write, crash_before, crash_after };

struct FaultHow {
  std::string_view name;
  FaultKind kind;
  int error = 0;
};
/// A lasting error befalls all later calls too that it may befall.
inline constexpr auto kFaultHows = std::to_array<FaultHow>({{"EIO", FaultKind::error, EIO},
                                                            {"ENOSPC", FaultKind::error, ENOSPC},
                                                            {"EINTR", FaultKind::error, EINTR},
                                                            {"short", FaultKind::short_write},
                                                            {"crash-before", FaultKind::crash_before},
                                                            {"crash-after", FaultKind::crash_after},
                                                            {"ENOSPC-lasting", FaultKind::lasting_error, ENOSPC},
                                                            {"EIO-lasting", FaultKind::lasting_error, EIO}});
/// The exit code of a crash on purpose.
inline constexpr int kFaultCrash = 77;

/// Calls by the names that the log has. "create" is an open() that may make a file, "read" stands for pread() too and
/// "remove" for all calls that remove a name.
inline bool may_befall(const FaultHow& how, std::string_view call) {
  const auto is = [&](auto... names) { return ((call == names) || ...); };
  const bool writes = is("write", "pwrite", "writev");
  if (how.kind == FaultKind::short_write) return is("write", "pwrite");
  if (how.kind == FaultKind::crash_before || how.kind == FaultKind::crash_after) return true;
  if (how.error == ENOSPC) return writes || is("create", "fsync", "ftruncate", "mkdir", "rename", "close");
  if (how.error == EINTR) return writes || is("create", "open", "read", "fsync", "ftruncate", "close");
  return true;
}

}  // namespace nought::test

// What this process asks of the disk: fsync(), rename(), renameat2(), remove() and flock(), recorded in their order, or
// made to fail.
//
// A test program that links recorded_calls.cpp reaches the system through it: the program's own definition of a
// function comes before the C library's.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace nought::test {

struct RecordedCall {
  std::string name;            // "fsync", "rename", "remove", "flock", or "exchange": renameat2 with RENAME_EXCHANGE
  std::filesystem::path path;  // of rename: the new name; of exchange: the second one
  std::string bytes = {};      // of fsync: what the file held then; empty for a folder

  friend bool operator==(const RecordedCall&, const RecordedCall&) = default;
};

/// Records the calls of all threads while it lives. One at a time.
class RecordedCalls {
 public:
  RecordedCalls();
  ~RecordedCalls();
  RecordedCalls(const RecordedCalls&) = delete;
  RecordedCalls& operator=(const RecordedCalls&) = delete;

  std::vector<RecordedCall> calls() const;
  /// The next call of this name does nothing and reports `error`, a number of errno.h.
  void fail_next(const std::string& name, int error);
};

}  // namespace nought::test

// DiskSort: sorts more records than memory holds. Sorted runs lie in files of a folder, and are merged.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <queue>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "nought/base/error.h"

namespace nought {

template <class Record>
requires std::is_trivially_copyable_v<Record>
class DiskSort {
 public:
  /// Runs are files NAME.0, NAME.1, ... of `folder`, which the destructor removes. At most `memory` bytes are held.
  DiskSort(std::filesystem::path folder, std::string name, int64_t memory)
      : folder_(std::move(folder)),
        name_(std::move(name)),
        capacity_(std::max<size_t>(static_cast<size_t>(memory) / sizeof(Record), 16)) {}
  ~DiskSort() {
    std::error_code ignored;
    for (size_t i = 0; i < runs_; ++i) std::filesystem::remove(path(i), ignored);
  }
  DiskSort(const DiskSort&) = delete;
  DiskSort& operator=(const DiskSort&) = delete;

  /// IoError.
  void add(const Record& record) {
    if (records_.size() == capacity_) write_run();
    // Growing by copies would hold half as much again for a while.
    if (records_.capacity() == records_.size())
      records_.reserve(std::min(capacity_, std::max<size_t>(records_.size() * 2, 4096)));
    records_.push_back(record);
  }

  /// Calls f for all records in their order, once. IoError.
  template <class F>
  void for_each(F&& f) {
    if (runs_ == 0) {
      std::sort(records_.begin(), records_.end());
      for (const Record& record : records_) f(record);
      return;
    }
    if (!records_.empty()) write_run();
    records_ = {};
    merge(f);
  }

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

  /// A run as it is read, a block at a time.
  struct Run {
    File file;
    std::vector<Record> block;
    size_t at = 0;
  };

  std::filesystem::path path(size_t run) const { return folder_ / (name_ + "." + std::to_string(run)); }

  File open(size_t run, const char* mode) const {
    File file(std::fopen(path(run).c_str(), mode), std::fclose);
    require<IoError>(file != nullptr, "{}: cannot open: {}", path(run).string(), std::strerror(errno));
    return file;
  }

  void write_run() {
    std::sort(records_.begin(), records_.end());
    const File file = open(runs_++, "wb");
    const bool good = std::fwrite(records_.data(), sizeof(Record), records_.size(), file.get()) == records_.size() &&
                      std::fflush(file.get()) == 0;
    require<IoError>(good, "cannot write {}: {}", path(runs_ - 1).string(), std::strerror(errno));
    records_.clear();
  }

  /// The next record of a run; null at its end.
  const Record* next(Run& run, size_t number, size_t block) const {
    if (run.at == run.block.size()) {
      run.block.resize(block);
      run.block.resize(std::fread(run.block.data(), sizeof(Record), block, run.file.get()));
      require<IoError>(!std::ferror(run.file.get()), "{}: cannot read: {}", path(number).string(),
                       std::strerror(errno));
      run.at = 0;
      if (run.block.empty()) return nullptr;
    }
    return &run.block[run.at++];
  }

  template <class F>
  void merge(F&& f) {
    const size_t block = std::max<size_t>(capacity_ / runs_, 16);
    std::vector<Run> runs;
    using Entry = std::pair<Record, size_t>;
    const auto later = [](const Entry& a, const Entry& b) { return b.first < a.first; };
    std::priority_queue<Entry, std::vector<Entry>, decltype(later)> heads(later);
    for (size_t i = 0; i < runs_; ++i) {
      runs.push_back({open(i, "rb"), {}, 0});
      if (const Record* record = next(runs[i], i, block)) heads.push({*record, i});
    }
    while (!heads.empty()) {
      const auto [record, run] = heads.top();
      heads.pop();
      f(record);
      if (const Record* after = next(runs[run], run, block)) heads.push({*after, run});
    }
  }

  std::filesystem::path folder_;
  std::string name_;
  size_t capacity_, runs_ = 0;
  std::vector<Record> records_;
};

}  // namespace nought

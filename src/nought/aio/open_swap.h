// OpenSwap: an open swap file: its descriptor, and a checksum and a length for each stretch of kSwapGrid bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "nought/aio/swap_call.h"

namespace nought {

class OpenSwap {
 public:
  /// Makes the file, and the folder if its parent is there, reserves the file's room, and takes its name away. Bypasses
  /// the page cache where the file system can, which it tries. IoError with `name`.
  OpenSwap(const std::filesystem::path& folder, std::string name, int64_t bytes, const SwapFault& fault = nullptr);
  ~OpenSwap();
  OpenSwap(const OpenSwap&) = delete;
  OpenSwap& operator=(const OpenSwap&) = delete;

  int descriptor() const { return descriptor_; }
  bool direct() const { return direct_; }
  int64_t bytes() const { return bytes_; }
  const std::string& name() const { return name_; }

  /// How many bytes, from its beginning on, the stretch that begins at `offset` holds.
  int64_t valid_bytes(int64_t offset) const { return blocks_[block_of(offset)].bytes; }
  /// Notes what the file holds from `offset` on, which is a multiple of kSwapGrid.
  void note(int64_t offset, std::span<const std::byte> bytes);
  /// IoError unless `bytes` are what was noted there.
  void verify(int64_t offset, std::span<const std::byte> bytes) const;

 private:
  struct Block {
    uint64_t checksum = 0;
    int64_t bytes = 0;
  };
  static size_t block_of(int64_t offset) { return static_cast<size_t>(offset / kSwapGrid); }
  void make(const std::filesystem::path& folder);
  void reserve() const;
  /// Whether the system takes reads and writes that bypass the page cache: some refuse the first, not the opening.
  bool takes_direct(const SwapFault& fault) const;
  [[noreturn]] void fail_with(const char* what, int reason) const;

  std::string name_;
  int64_t bytes_;
  int descriptor_ = -1;
  bool direct_ = true;
  std::vector<Block> blocks_;
};

}  // namespace nought

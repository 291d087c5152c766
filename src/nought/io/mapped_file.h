// MappedFile: a file mapped into memory, read-only. The system reads a page of it when it is first touched.
//
// A page that is gone by then, because the file has become shorter or its disk fails, is a SIGBUS. Nothing can be read
// in its place: the code that asked expects no error there, and zeros would train a wrong model. So a program that
// installs a handler, as ours does, asks place_of() which file the address belongs to, says so, and ends. Pages that
// nobody needs may be missing.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "nought/base/math.h"

namespace nought {

class MappedFile {
 public:
  /// Maps the file. IoError, which names it, if it cannot be opened or is not a regular file.
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// All bytes of the file. The first one is page-aligned.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// All bytes of the file as text.
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  /// Gives the pages of these bytes back to the system, so that a process that reads a large file does not hold all of
  /// it. They stay mapped, and are read again when they are next touched.
  void release(Interval bytes) const;

  /// An address within a mapped file.
  struct Place {
    const char* path;
    size_t offset, size;  // where the address lies; what the whole file had when it was mapped
  };
  /// The place of an address; nullopt if no file is mapped there. A signal handler may call it: it takes no lock and no
  /// memory. The path stays valid while the file is mapped.
  static std::optional<Place> place_of(const void* address);

 private:
  struct Region;
  Region* region_ = nullptr;  // null: an empty file
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace nought

// FileFormat: the name and version of what Nought writes, "nought-checkpoint-1"; newer versions are refused by name.
//
// A version rises when an older program would misread a file; a member that older programs may ignore does not raise
// it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "nought/base/json_fwd.h"

namespace nought {

struct FileFormat {
  std::string_view name;
  int64_t version = 1;

  /// "nought-checkpoint-1".
  std::string str() const;
};

/// IoError unless this program, which reads up to `readable`, can read that version.
void require_readable(const std::filesystem::path& file, int64_t version, const FileFormat& readable);
/// require_readable() for what a file's member "format" says.
void require_readable(const std::filesystem::path& file, const Json& format, const FileFormat& readable);

}  // namespace nought

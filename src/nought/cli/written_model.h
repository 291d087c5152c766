// What commands that write a model share: where it may be written, and what the process needed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace nought {

/// What is there already is written over if the user says so. ConfigError if `target` is what is read, is a folder
/// where a file is to be written, or holds something and `force` is off.
void require_free_target(const std::string& target, bool is_file, bool force, const std::filesystem::path& source);

/// The peak memory of this process, pages of mapped files included.
int64_t peak_resident_bytes();

}  // namespace nought

// What an open file is, whatever has happened to its name since it was opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace nought {

/// Whether `path` names the file that is open. False if it was removed, moved or replaced.
bool is_named(int descriptor, const std::filesystem::path& path);

/// The first `limit` bytes of the open file, or all of them, though it may have no name any more. IoError with `path`.
std::string bytes_in(int descriptor, const std::filesystem::path& path, size_t limit = SIZE_MAX);

}  // namespace nought

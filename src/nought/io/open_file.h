// What an open file is, whatever has happened to its name since it was opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace nought {

/// open(2), again while a signal interrupts it; -1 with errno. The descriptor is not inherited.
int open_file(const std::filesystem::path& path, int flags, unsigned mode = 0);
/// All bytes of a file; nothing if there is no such file. IoError.
std::optional<std::string> bytes_if_there(const std::filesystem::path& path);

/// Whether `path` names the file that is open. False if it was removed, moved or replaced.
bool is_named(int descriptor, const std::filesystem::path& path);

/// The first `limit` bytes of the open file, or all of them, though it may have no name any more. IoError with `path`.
std::string bytes_in(int descriptor, const std::filesystem::path& path, size_t limit = SIZE_MAX);

}  // namespace nought

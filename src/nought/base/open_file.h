// Opens, reads and writes files as the system has them: a call that a signal interrupts is made again, and an error has
// the system's reason. Also what an open file is, whatever has happened to its name since it was opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace nought {

/// open(2), again while a signal interrupts it; -1 with errno. The descriptor is not inherited.
int open_file(const std::filesystem::path& path, int flags, unsigned mode = 0);
/// All bytes of a file, or of a pipe up to its end; nothing if there is no such file. IoError.
std::optional<std::string> bytes_if_there(const std::filesystem::path& path);
/// What a file below /proc or /sys says; "" if it cannot be read.
std::string system_text(const std::filesystem::path& path);

/// The entries of a folder, in no order; `error` says why it cannot be listed.
std::vector<std::filesystem::directory_entry> entries_of(const std::filesystem::path& folder, std::error_code& error);
/// The entries of a folder, in no order. IoError if it cannot be listed.
std::vector<std::filesystem::directory_entry> entries_of(const std::filesystem::path& folder);

/// Removes what is there, with all that is below it. std::filesystem::filesystem_error.
void remove_all_of(const std::filesystem::path& path);

/// Writes all bytes where the descriptor stands; 0, or the system's reason why it cannot.
int write_all(int descriptor, std::string_view bytes);
/// Flushes what was written to disk, by fsync(2); 0, or the system's reason why it cannot.
int flush_file(int descriptor);

/// Whether `path` names the file that is open. False if it was removed, moved or replaced.
bool is_named(int descriptor, const std::filesystem::path& path);

/// The first `limit` bytes of the open file, or all of them, though it may have no name any more. IoError with `path`.
std::string bytes_in(int descriptor, const std::filesystem::path& path, size_t limit = SIZE_MAX);

}  // namespace nought

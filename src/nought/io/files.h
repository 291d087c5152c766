// Finds the files that a pattern names, reads whole files, and says in one line what the file system refuses.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/error.h"

namespace nought {

/// The regular files (or links to them) that a pattern matches, sorted by path, each once. The wildcards `*`, `?` and
/// `[...]` match within a path component. A component `**` matches any number of folders; it does not follow links to
/// folders, so a cycle of links cannot trap it. `**.txt` is `**/*.txt`. As in a shell, no wildcard matches a leading
/// dot. IoError, which names the pattern, if nothing matches.
std::vector<std::filesystem::path> expand_glob(const std::string& pattern);

/// All bytes of a file. IoError if it cannot be read.
std::string read_bytes(const std::filesystem::path& file);
/// All bytes of a text file. IoError if it cannot be read, or if it holds a byte 0 and so is not text.
std::string read_text(const std::filesystem::path& file);

/// Whether a text is the name of a file in a folder and leads nowhere else: neither empty nor "." nor "..", without
/// '/', line breaks and the byte 0, at which the system would end it.
bool is_file_name(std::string_view name);

/// Writes out what was printed to a stream. IoError if that, or something printed earlier, could not be written.
void flush_printed(std::FILE* stream);

/// Runs f, which writes at `path`. If the file system refuses something, the error is an IoError of one line.
template <class F>
void with_io_errors(const std::filesystem::path& path, F&& f) {
  try {
    f();
  } catch (const std::filesystem::filesystem_error& error) {
    fail<IoError>("cannot write {}: {}", path.string(), error.code().message());
  }
}

}  // namespace nought

#include "nought/io/atomic_folder.h"

#include <cerrno>
#include <cstdio>

#include <fcntl.h>

#include "nought/base/open_file.h"
#include "nought/io/atomic_file.h"
#include "nought/io/files.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// Two folders change their names in one step. False if the file system or the kernel cannot do that.
bool exchange(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  throw fs::filesystem_error("exchange", a, b, std::error_code(errno, std::generic_category()));
}

}  // namespace

fs::path partial_folder(const fs::path& path) { return path.string() + ".partial"; }

void begin_folder(const fs::path& path) {
  const fs::path partial = partial_folder(path);
  with_io_errors(partial, [&] { remove_all_of(partial), fs::create_directories(partial); });
}

void publish_folder(const fs::path& path) {
  const fs::path partial = partial_folder(path), old = path.string() + ".old";
  with_io_errors(path, [&] {
    require<IoError>(fs::is_directory(partial), "cannot write {}: {} is not there", path.string(), partial.string());
    sync_folder(partial);
    remove_all_of(old);  // left by a version that knew no exchange, or by a crash without one
    const bool replaces = fs::exists(path), exchanged = replaces && exchange(partial, path);
    if (replaces && !exchanged) fs::rename(path, old);
    if (!exchanged) fs::rename(partial, path);
    sync_folder(path.parent_path());
    remove_all_of(exchanged ? partial : old);
  });
}

}  // namespace nought

#include "nought/io/atomic_folder.h"

#include "nought/io/atomic_file.h"
#include "nought/io/files.h"

namespace nought {

namespace fs = std::filesystem;

fs::path partial_folder(const fs::path& path) { return path.string() + ".partial"; }

void begin_folder(const fs::path& path) {
  const fs::path partial = partial_folder(path);
  with_io_errors(partial, [&] { fs::remove_all(partial), fs::create_directories(partial); });
}

void publish_folder(const fs::path& path) {
  const fs::path partial = partial_folder(path), old = path.string() + ".old";
  with_io_errors(path, [&] {
    require<IoError>(fs::is_directory(partial), "cannot write {}: {} is not there", path.string(), partial.string());
    sync_folder(partial);
    fs::remove_all(old);
    if (fs::exists(path)) fs::rename(path, old);
    fs::rename(partial, path);
    sync_folder(path.parent_path());
    fs::remove_all(old);
  });
}

}  // namespace nought

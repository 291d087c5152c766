#include "nought/cli/written_model.h"

#include <sys/resource.h>

#include "nought/base/error.h"

namespace nought {

namespace fs = std::filesystem;

void require_free_target(const std::string& target, bool is_file, bool force, const fs::path& source) {
  std::error_code ignored;
  require<ConfigError>(!fs::equivalent(source, target, ignored),
                       "{} is the folder that is read: give another one to write to", target);
  const bool is_folder = fs::is_directory(target, ignored);
  require<ConfigError>(!is_file || !is_folder, "{} is a folder: name the .gguf file to write", target);
  require<ConfigError>(is_file || is_folder || !fs::exists(target, ignored),
                       "{} is a file, and a Hugging Face folder is to be written: --format gguf writes a file", target);
  const bool holds = is_folder ? !fs::is_empty(target, ignored) : fs::exists(target, ignored);
  require<ConfigError>(force || !holds, "{}: {} already: --force writes over it", target,
                       is_folder ? "holds files" : "is there");
}

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace nought

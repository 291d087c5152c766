#include "nought/cuda/library.h"

#include <cstdlib>
#include <string_view>

#include <dlfcn.h>
#include <link.h>

#include "nought/base/error.h"

namespace nought::cuda {

namespace {

/// Where the libraries of an installation lie below its root; the last three are those of Python's packages.
constexpr std::string_view kBelow[] = {"", "lib64", "lib", "cu13/lib", "cudnn/lib", "nccl/lib"};

std::string path_of(void* handle, const std::string& soname) {
  link_map* map = nullptr;
  const bool is_known = dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0;
  return is_known && map != nullptr && map->l_name != nullptr ? map->l_name : soname;
}

}  // namespace

LibrarySearch LibrarySearch::of_environment() {
  LibrarySearch search;
  const char* const set = std::getenv("NOUGHT_CUDA_PATH");
  for (std::string_view rest = set != nullptr ? set : ""; !rest.empty();) {
    const size_t end = rest.find(':');
    if (end != 0) search.folders.emplace_back(rest.substr(0, end));
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
  }
  return search;
}

Library::Library(const std::vector<std::string>& sonames, const LibrarySearch& search) {
  std::string broken;  // what the linker says of a file that is there
  const auto open = [&](const std::string& name) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr && name.find('/') != std::string::npos) broken = dlerror();
    return handle_ != nullptr;
  };
  const auto look_in = [&](const std::filesystem::path& folder, const std::string& soname) {
    for (const std::string_view below : kBelow) {
      const std::filesystem::path file = folder / below / soname;
      if (std::error_code ignored; std::filesystem::exists(file, ignored) && open(file.string())) return true;
    }
    return false;
  };
  for (const std::string& soname : sonames) {
    bool found = false;
    for (const std::filesystem::path& folder : search.folders) found = found || look_in(folder, soname);
    found = found || (search.in_system && (open(soname) || look_in("/usr/local/cuda", soname)));
    if (!found) continue;
    path_ = path_of(handle_, soname);
    return;
  }
  if (!broken.empty()) fail<IoError>("{}", broken);
  std::string names, places;
  for (const std::string& soname : sonames) names += (names.empty() ? "" : " or ") + soname;
  for (const std::filesystem::path& folder : search.folders) places += folder.string() + ", ";
  fail<IoError>("no {} in {}{}", names, places,
                search.in_system ? "the linker's folders and /usr/local/cuda" : "no other folder");
}

void* Library::symbol(const char* name) const {
  void* const found = dlsym(handle_, name);
  require<IoError>(found != nullptr, "{} has no {}", path_, name);
  return found;
}

std::string version_text(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace nought::cuda

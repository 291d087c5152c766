// Libraries of CUDA, found when the program runs: nothing is linked that a machine without a GPU lacks.
//
// Design goals: a library that is missing, too old or broken is a sentence that says what was looked for and where.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace nought::cuda {

/// Where libraries are looked for: in `folders` first, then, if `in_system` is true, where the dynamic linker looks,
/// and in /usr/local/cuda. A folder may be the one of libraries, an installation of CUDA, or site-packages/nvidia of
/// Python.
struct LibrarySearch {
  std::vector<std::filesystem::path> folders = {};
  bool in_system = true;

  /// The folders of NOUGHT_CUDA_PATH, which colons separate, and the system.
  static LibrarySearch of_environment();
};

/// A library that was loaded; it stays so.
class Library {
 public:
  /// The first of `sonames` that is found. IoError that names them and the folders if none can be loaded.
  Library(const std::vector<std::string>& sonames, const LibrarySearch& search);

  const std::string& path() const { return path_; }
  /// A function of the library. IoError if it has none of that name.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  void* handle_ = nullptr;
  std::string path_;
};

/// cuBLASLt, cuDNN and NCCL number their versions alike: 130100 is 13.1.0.
std::string version_text(size_t version);

}  // namespace nought::cuda

// AppendFile: a file that grows while a program runs, and stays whole under its name whatever is done to that name.
#pragma once

#include <filesystem>
#include <string_view>

namespace nought {

class AppendFile {
 public:
  AppendFile() = default;
  /// Creates the file with `beginning` in it, in place of what is there. IoError.
  AppendFile(std::filesystem::path path, std::string_view beginning);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;

  /// Appends the bytes, and gives them to the system at once. If a disk takes a part of them alone, none is kept. If
  /// the file was removed, moved or replaced since, all that it holds is written again under its name, in a new folder
  /// if that is gone too. IoError.
  void append(std::string_view bytes);
  /// What was appended is on disk when it returns. IoError.
  void sync() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  /// Gives the file what it begins with, and opens it.
  void open(std::string_view beginning);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace nought

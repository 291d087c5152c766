// TensorPieces: tensors of which every file of a folder holds a piece, as ranks write them.
//
// Design goals: pieces are read where they lie, and nothing is joined before it is asked for. Each element is in one
// piece, or the folder is refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nought/io/mapped_file.h"
#include "nought/io/safetensors.h"

namespace nought {

/// Elements of a tensor that follow each other in a file. In the flattened tensor they are `rows` runs of `run`
/// elements; the first begins at `begin`, and the others `stride` elements after each other.
struct TensorPiece {
  size_t file = 0;     // what TensorPieces::open() returned
  int64_t offset = 0;  // of the first element in the file, in bytes
  int64_t begin = 0, run = 0;
  int64_t rows = 1, stride = 0;
};

class TensorPieces {
 public:
  explicit TensorPieces(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Another set of tensors, in the files that are open here by now.
  TensorPieces without_tensors() const {
    TensorPieces other(folder_);
    other.files_ = files_;
    return other;
  }
  /// Maps a file. IoError.
  size_t open(const std::filesystem::path& file);
  std::span<const std::byte> bytes(size_t file) const { return files_[file].file->bytes(); }
  const std::filesystem::path& path(size_t file) const { return files_[file].path; }
  /// Adds a tensor of which the entry says all but its bytes. IoError if an element is in no piece or in two, or if a
  /// piece leaves its file. That rows of several pieces do not overlap is for the caller to check.
  void add(TensorEntry entry, std::vector<TensorPiece> pieces);
  /// Gives a tensor a second name. IoError if there is no tensor `known`.
  void add_name(const std::string& name, const std::string& known);
  /// A tensor of a dtype that Nought does not compute with.
  void add_unsupported(const std::string& name, std::string_view dtype);
  /// A tensor that is there and not read; `why` goes on from its name: "has dtype torch.int16, which ...".
  void add_unread(const std::string& name, const std::string& why) { unread_.emplace(name, why); }
  /// Opens the files of others here too. Returns which is the first of them here.
  size_t adopt_files(const TensorPieces& others);

  bool contains(std::string_view name) const { return tensors_.contains(name) || unread_.contains(name); }
  /// In the order of their names.
  std::vector<TensorEntry> entries() const;
  std::vector<std::string> names() const;
  /// nullptr if there is no such tensor; IoError if it is not read.
  const TensorEntry* find(std::string_view name) const;
  std::span<const TensorPiece> pieces_of(std::string_view name) const { return at(name).pieces; }
  /// Whether a tensor has the same bytes elsewhere, with the same dtype and shape.
  bool is_same_in(const TensorPieces& others, std::string_view name) const;
  const std::map<std::string, std::string, std::less<>>& unread() const { return unread_; }
  /// As SafetensorsFile::read().
  void read(std::string_view name, Interval elements, const Tensor& destination) const;
  /// The bytes of a tensor in the order of its elements, some at a time.
  void visit_bytes(std::string_view name, const std::function<void(std::span<const std::byte>)>& visit) const;

  const std::filesystem::path& folder() const { return folder_; }
  int64_t num_files() const { return std::ssize(files_); }
  int64_t file_bytes() const;
  int64_t bytes_read() const { return bytes_read_->load(); }

 private:
  struct File {
    std::filesystem::path path;
    std::shared_ptr<const MappedFile> file;
  };
  struct Pieced {
    TensorEntry entry;
    std::vector<TensorPiece> pieces;  // by their first elements
  };
  int64_t checked_bytes(const Pieced& tensor) const;
  const Pieced& at(std::string_view name) const;
  void copy(const Pieced& tensor, Interval elements, DType to, std::byte* target) const;
  void copy_piece(const TensorEntry& entry, const TensorPiece& piece, Interval elements, DType to,
                  std::byte* target) const;

  std::filesystem::path folder_;
  std::vector<File> files_;
  std::map<std::string, Pieced, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> unread_;  // name -> why
  std::shared_ptr<std::atomic<int64_t>> bytes_read_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace nought

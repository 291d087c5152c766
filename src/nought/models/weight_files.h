// WeightFiles: reads the weights of a Hugging Face folder from one safetensors file or from shards; or from what
// torch.save(), or the ranks of another program, wrote.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nought/io/safetensors.h"
#include "nought/io/tensor_pieces.h"
#include "nought/io/whole_shapes.h"

namespace nought {

/// True if the folder has weights that WeightFiles reads.
bool holds_weights(const std::filesystem::path& folder);

/// The weights of a Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json names; or
/// else pytorch_model.bin, or the shards of pytorch_model.bin.index.json; or else a checkpoint of DeepSpeed or FSDP2,
/// of which a tensor lies in pieces.
class WeightFiles {
 public:
  /// Opens a folder, or one .safetensors file. It opens every shard and looks up every tensor of the index. IoError.
  /// shapes: tell how tensor parallel ranks of another program cut tensors.
  explicit WeightFiles(const std::filesystem::path& path, const WholeShapes& shapes = {});

  std::vector<TensorEntry> entries() const;
  /// What another program's ranks saved and nobody can join: "NAME is cut over 2 ...".
  std::vector<std::string> unread() const;
  /// Whether the folder is a checkpoint of another program.
  bool in_pieces() const { return pieces_.has_value(); }
  /// Also one that is not read, which find() refuses.
  bool contains(std::string_view name) const { return owner_.contains(name) || (pieces_ && pieces_->contains(name)); }
  const TensorEntry* find(std::string_view name) const;
  const TensorEntry& at(std::string_view name) const;
  /// The file that holds a whole tensor; IoError if there is none.
  const SafetensorsFile& file_of(std::string_view name) const;
  /// The file that holds a tensor; of one in pieces, the folder.
  const std::filesystem::path& path_of(std::string_view name) const;
  /// The bytes of a tensor in the order of its elements, as they are stored, some at a time.
  void visit_bytes(std::string_view name, const std::function<void(std::span<const std::byte>)>& visit) const;
  void read(std::string_view name, Interval elements, const Tensor& destination) const;
  Tensor load(std::string_view name, Memory& memory, Category category = Category::parameters) const;
  int64_t bytes_read() const;
  int64_t num_files() const { return std::ssize(files_) + (pieces_ ? pieces_->num_files() : 0); }
  int64_t file_bytes() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  void open_single(const std::filesystem::path& file);
  void open_index(const std::filesystem::path& index_file);
  bool in_pieces(std::string_view name) const { return pieces_ && pieces_->find(name) != nullptr; }
  [[noreturn]] void refuse_missing(std::string_view name) const;

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t, std::less<>> owner_;  // tensor -> position in files_
  std::optional<TensorPieces> pieces_;
};

}  // namespace nought

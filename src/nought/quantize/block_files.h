// BlockFiles: the blocks of a model that are in few bits already, in a folder beside the one that is written, so that a
// command that was killed goes on where it was.
//
// Design goals: a block counts once progress.json says so, which appears last and whole. What is kept goes with what it
// was made of: other weights, options or rows are refused, never mixed. Non-goals: several processes.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "nought/base/json.h"
#include "nought/io/file_lock.h"
#include "nought/io/safetensors_writer.h"

namespace nought {

class BlockFiles {
 public:
  /// folder: the one that is written at the end; the blocks are in partial_folder() of it, which appears.
  /// made_of: all that codes depend on, by the names that a user knows. anew: blocks that were made of something else
  /// go; without it they are a ConfigError. IoError, also where another process is at work there.
  BlockFiles(const std::filesystem::path& folder, Json made_of, bool anew);
  /// Leaves no folder behind in which no block is done.
  ~BlockFiles();
  BlockFiles(const BlockFiles&) = delete;
  BlockFiles& operator=(const BlockFiles&) = delete;

  /// How many blocks are done: the first ones.
  int64_t done() const { return done_; }
  /// What add() was given with the last of them; null if there is none.
  const Json& remembered() const { return remembered_; }
  /// The rows that came out of the last of them, in the order in which add() got them.
  std::vector<Tensor> rows(Memory& memory) const;

  /// The file of the next block.
  SafetensorsWriter next(const std::vector<TensorSpec>& tensors) const;
  /// The block is done: its file is finished, and it and what is remembered are on disk when this returns.
  void add(SafetensorsWriter& block, const std::vector<Tensor>& rows, Json remembered);

  /// Calls f with each tensor of all blocks, flat, as its bytes lie in the file.
  void for_each(Memory& memory, const std::function<void(const std::string& name, const Tensor& values)>& f) const;
  void remove();

 private:
  std::filesystem::path file_of(std::string_view kind, int64_t block) const;
  void recall(bool anew);

  std::filesystem::path folder_;
  FileLock lock_;
  Json made_of_, remembered_;
  int64_t done_ = 0;
};

}  // namespace nought

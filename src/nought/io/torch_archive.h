// The tensors of a file that torch.save() wrote: a ZIP archive with a pickle that describes them, and their bytes.
//
// Design goals: tensors are found where they lie, and nothing is copied; the pickle is data, and nothing of it is run.
// Non-goals: files of torch before 1.6, which are no archives; tensors whose elements are not in their order.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/io/pickle.h"
#include "nought/io/safetensors.h"

namespace nought {

/// Whether a file begins as a ZIP archive does.
bool is_torch_archive(std::span<const std::byte> bytes);
/// Whether a file begins with the number that torch wrote before 1.6, in a pickle that is no archive.
bool is_old_torch_file(std::span<const std::byte> bytes);

/// The dtype that torch.save names "torch.float32" or "torch.FloatStorage".
struct TorchDType {
  std::string_view storage, name;
  int64_t size;
  std::optional<DType> dtype;  // none: known to torch, and not to Nought
  std::optional<Float8> packed = {};
};
/// nullptr if it is none that is known.
const TorchDType* find_torch_dtype(std::string_view name);
/// Whether a global describes tensors, or what their dicts are made of, or is one of `more`.
bool is_global_of_tensors(std::string_view name, std::span<const std::string_view> more = {});

struct TorchTensor {
  TensorEntry entry;  // bytes: within the file
  const TorchDType* dtype;
};

/// What torch.save() wrote, and where its tensors lie. `bytes` must outlive it.
class TorchArchive {
 public:
  /// Reads the directory and the pickle. `more`: the globals that may occur beside those of tensors. IoError, which
  /// names `source`.
  TorchArchive(std::span<const std::byte> bytes, std::string source, std::span<const std::string_view> more = {});

  const std::string& source() const { return source_; }
  const Pickle& pickle() const { return pickle_; }
  const PickleValue& root() const { return pickle_[pickle_.root]; }
  bool is_tensor(const PickleValue& value) const;
  /// A tensor, or a parameter. `name` is for the entry, and for an IoError if the value is no tensor, or a damaged one.
  TorchTensor tensor(const std::string& name, const PickleValue& value) const;

 private:
  template <class... Args>
  [[noreturn]] void refuse(const std::string& name, fmt::format_string<Args...> format, Args&&... args) const;
  bool is_parameter(const PickleValue& value) const;
  int64_t count(const std::string& name, const PickleValue& value) const;
  int64_t shape_of(const std::string& name, const PickleValue& arguments, Shape& shape) const;

  std::string source_, prefix_;
  std::map<std::string, Interval> files_;
  Pickle pickle_;
};

struct TorchTensors {
  std::vector<TensorEntry> entries = {};                              // bytes: within the file
  std::vector<std::pair<std::string, std::string>> unsupported = {};  // name, dtype
};
/// The tensors of a state dict. Those of dicts and lists within it are named with dots: "module.weight", "groups.0";
/// what is no tensor is left out. more: see TorchArchive. IoError, which names `source`.
TorchTensors read_torch_archive(std::span<const std::byte> bytes, const std::string& source,
                                std::span<const std::string_view> more = {});

}  // namespace nought

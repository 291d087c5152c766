// What DeepSpeed's ranks saved of a step: an archive of each, and flat tensors that go on from rank to rank.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/error.h"
#include "nought/base/math.h"
#include "nought/io/convert.h"
#include "nought/io/tensor_pieces.h"
#include "nought/io/torch_archive.h"

namespace nought {

/// An archive, and the file that it lies in.
struct DeepSpeedArchive {
  size_t file = 0;
  std::span<const std::byte> bytes = {};
  const TorchArchive* archive = nullptr;

  const Pickle& pickle() const { return archive->pickle(); }
  const PickleValue& value(std::string_view key) const { return of(archive->root(), key); }
  const PickleValue& of(const PickleValue& dict, std::string_view key) const {
    const PickleValue* found = pickle().find(dict, key);
    require<IoError>(found != nullptr, "{}: has no \"{}\", which DeepSpeed writes", archive->source(), key);
    return *found;
  }
  const PickleValue& list_of(const PickleValue& dict, std::string_view key) const {
    const PickleValue& list = of(dict, key);
    require<IoError>(list.kind == PickleValue::Kind::list, "{}: \"{}\" is no list", archive->source(), key);
    return list;
  }
  /// Visits keys and values of a dict in their order.
  template <class Visit>
  void for_each_entry(const PickleValue& dict, const Visit& visit) const {
    require<IoError>(pickle().for_each_entry(dict, visit), "{}: no dict where DeepSpeed writes one", archive->source());
  }
  /// A number, also one in a tensor of a single element; nothing for anything else.
  std::optional<double> number(const PickleValue& value) const {
    using Kind = PickleValue::Kind;
    if (value.kind == Kind::integer || value.kind == Kind::boolean) return static_cast<double>(value.integer);
    if (value.kind == Kind::number) return value.number;
    if (!archive->is_tensor(value)) return std::nullopt;
    const TorchTensor tensor = archive->tensor("step", value);
    if (!tensor.dtype->dtype || tensor.entry.packed || tensor.entry.shape.numel() != 1) return std::nullopt;
    return number_at(*tensor.dtype->dtype, bytes.data() + tensor.entry.bytes.begin);
  }
};

/// The elements of a rank's flat tensor, which lie in a file.
struct FlatSegment {
  size_t file;
  int64_t offset;  // in bytes
  int64_t numel;
};

/// The flat tensors of ranks, one after the other.
struct DeepSpeedFlat {
  std::vector<FlatSegment> segments = {};
  DType dtype = DType::f32;
  int64_t numel = 0;

  /// Appends a tensor of a rank, of which no more than `most` elements count. IoError unless all are of one float
  /// dtype.
  void append(const DeepSpeedArchive& rank, const std::string& name, const PickleValue& value,
              int64_t most = std::numeric_limits<int64_t>::max()) {
    const TorchTensor tensor = rank.archive->tensor(name, value);
    require<IoError>(tensor.dtype->dtype && is_float(*tensor.dtype->dtype) && !tensor.entry.packed &&
                         (segments.empty() || dtype == *tensor.dtype->dtype),
                     "{}: \"{}\" is {}, and masters and states are floats of one dtype", rank.archive->source(), name,
                     tensor.dtype->name);
    dtype = *tensor.dtype->dtype;
    segments.push_back({rank.file, tensor.entry.bytes.begin, std::min(tensor.entry.shape.numel(), most)});
    numel += segments.back().numel;
  }
  /// Appends the pieces of these elements, which are those from `begin` of a tensor.
  void cut(Interval elements, int64_t begin, std::vector<TensorPiece>& pieces) const {
    int64_t at = 0;
    for (const FlatSegment& segment : segments) {
      const int64_t first = std::max(at, elements.begin), last = std::min(at + segment.numel, elements.end);
      if (first < last)
        pieces.push_back({segment.file, segment.offset + (first - at) * size_of(dtype), begin + first - elements.begin,
                          last - first});
      at += segment.numel;
    }
  }
};

}  // namespace nought

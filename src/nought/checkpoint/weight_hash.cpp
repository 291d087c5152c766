#include "nought/checkpoint/weight_hash.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "nought/base/math.h"
#include "nought/base/text.h"
#include "nought/checkpoint/owned_pieces.h"
#include "nought/comm/first_rank.h"
#include "nought/io/sha256.h"
#include "nought/offload/host_context.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {

constexpr int64_t kStretch = int64_t{1} << 20;  // elements

/// What a rank owns of one tensor.
struct OwnedTensor {
  struct Run {
    const OwnedPiece* piece;
    Interval in_piece, global;
  };
  int64_t numel = 0;
  std::vector<Run> runs = {};  // rising

  /// Whether all of the stretch is here.
  bool has(Interval stretch) const {
    int64_t there = 0;
    for (const Run& run : runs) there += intersect(run.global, stretch).size();
    return there == stretch.size();
  }
};

Interval stretch_of(int64_t index, int64_t numel) {
  return {index * kStretch, std::min(numel, (index + 1) * kStretch)};
}

/// By name, which is the same order everywhere.
std::map<std::string, OwnedTensor> own_tensors(const std::vector<OwnedPiece>& pieces, const Mesh& mesh) {
  std::map<std::string, OwnedTensor> tensors;
  for (const OwnedPiece& piece : pieces) {
    if (piece.state != name_of(StateKind::master)) continue;
    OwnedTensor& tensor = tensors[piece.parameter->name];
    tensor.numel = piece.parameter->placement.global.numel();
    int64_t at = 0;
    for (const Interval& global : global_elements(*piece.parameter, mesh, piece.in_parameter)) {
      tensor.runs.push_back({&piece, {at, at + global.size()}, global});
      at += global.size();
    }
  }
  for (auto& [name, tensor] : tensors)
    std::ranges::sort(tensor.runs, {}, [](const OwnedTensor::Run& run) { return run.global.begin; });
  return tensors;
}

/// A tensor of the model, as all ranks know it.
struct KnownTensor {
  int64_t numel = 0;
  std::map<int64_t, int> whole = {};  // by stretch: the rank that has all of it, if one does
};

/// What the ranks have: a line for each tensor with its elements and the stretches that are whole.
std::map<std::string, KnownTensor> all_tensors(Communicator& ranks, const Context& context,
                                               const std::map<std::string, OwnedTensor>& own) {
  std::string text;
  for (const auto& [name, tensor] : own) {
    text += fmt::format("{} {}", name, tensor.numel);
    for (int64_t i = 0; i < ceil_div(tensor.numel, kStretch); ++i)
      if (tensor.has(stretch_of(i, tensor.numel))) text += fmt::format(" {}", i);
    text += '\n';
  }
  const auto number = [](const std::string& word) {
    int64_t value = 0;
    std::from_chars(word.data(), word.data() + word.size(), value);
    return value;
  };
  std::map<std::string, KnownTensor> all;
  const std::vector<std::string> texts = texts_of_ranks(ranks, context, text);
  for (size_t rank = 0; rank < texts.size(); ++rank)
    for (const std::string& line : split(texts[rank], '\n')) {
      if (line.empty()) continue;
      const std::vector<std::string> words = split(line, ' ');
      KnownTensor& tensor = all[words[0]];
      tensor.numel = number(words[1]);
      for (size_t i = 2; i < words.size(); ++i) tensor.whole.emplace(number(words[i]), static_cast<int>(rank));
    }
  return all;
}

/// Hashes stretches on one rank, some elements after the other.
class StretchHasher {
 public:
  StretchHasher(const Context& training, Communicator& ranks)
      : training_(training), host_(host_context(training)), ranks_(ranks), room_(training, ranks.size()) {}

  /// All elements of the stretch are here.
  std::string of_whole(const OwnedTensor& tensor, Interval stretch) {
    Sha256 hash;
    for (Interval piece = first_piece(stretch); !piece.empty(); piece = next_piece(piece, stretch)) {
      fill(&tensor, piece);
      add_values(hash);
    }
    return hash.hex();
  }
  /// Ranks have parts of it. Collective; null: this rank has none. Returns the hash on `hashed_by` alone.
  std::string of_parts(const OwnedTensor* tensor, Interval stretch, int hashed_by) {
    Sha256 hash;
    const bool mine = ranks_.rank() == hashed_by;
    for (Interval piece = first_piece(stretch); !piece.empty(); piece = next_piece(piece, stretch)) {
      fill(tensor, piece);
      const Tensor sum = room_.sum.flat(0, piece.size());
      training_.upload<float>(values_, sum);
      ranks_.all_reduce(sum).wait();
      if (!mine) continue;
      values_ = training_.to_host<float>(sum);
      add_values(hash);
    }
    return mine ? hash.hex() : "";
  }

 private:
  static Interval first_piece(Interval stretch) {
    return {stretch.begin, std::min(stretch.end, stretch.begin + HashRoom::kElements)};
  }
  static Interval next_piece(Interval piece, Interval stretch) { return first_piece({piece.end, stretch.end}); }

  /// values_ = what this rank has of the piece, and 0 where others have it.
  void fill(const OwnedTensor* tensor, Interval piece) {
    values_.assign(static_cast<size_t>(piece.size()), 0);
    if (tensor == nullptr) return;
    for (const OwnedTensor::Run& run : tensor->runs) {
      const Interval global = intersect(run.global, piece);
      if (global.size() == 0) continue;
      const int64_t first = run.in_piece.begin + global.begin - run.global.begin;
      read(*run.piece, {first, first + global.size()},
           std::span(values_).subspan(static_cast<size_t>(global.begin - piece.begin)));
    }
  }
  void read(const OwnedPiece& piece, Interval elements, std::span<float> into) {
    // Runs of a cut matrix are short: what follows them is read too, and kept for the next run.
    if (kept_ != &piece || elements.begin < at_.begin || elements.end > at_.end) {
      const int64_t size = piece.in_parameter.size();
      at_ = piece.whole ? Interval{0, size}
                        : Interval{elements.begin, std::min(size, elements.begin + HashRoom::kElements)};
      kept_ = &piece;
      kept_values_ = values_of(piece, at_);
    }
    std::copy_n(kept_values_.begin() + (elements.begin - at_.begin), elements.size(), into.begin());
  }
  std::vector<float> values_of(const OwnedPiece& piece, Interval elements) {
    if (piece.held) return piece.held.flat(elements.begin, elements.end).to_vector<float>();
    Memory& memory = *training_.memory;
    const int64_t bytes = elements.size() * size_of(piece.dtype);
    const Tensor values = bytes <= room_.read.bytes() ? room_.read.flat(0, bytes).reinterpret(piece.dtype)
                                                      : Tensor::empty(memory, {elements.size()}, piece.dtype,
                                                                      Category::workspace, memory.host_pool());
    const Context& by = piece.on_host ? host_ : training_;
    piece.read(by, elements, values);
    by.stream->synchronize();
    return values.to_vector<float>();
  }
  void add_values(Sha256& hash) {
    for (float& value : values_) value += 0.0F;  // sums of several ranks have no negative zero
    hash.add(std::as_bytes(std::span(values_)));
  }

  const Context& training_;
  Context host_;
  Communicator& ranks_;
  HashRoom room_;
  std::vector<float> values_;  // of the piece that is hashed
  const OwnedPiece* kept_ = nullptr;
  Interval at_ = {};
  std::vector<float> kept_values_;
};

/// The hash of a model of these tensors, by name, and of the hashes of their stretches.
class TotalHash {
 public:
  void add_tensor(const std::string& name, int64_t numel) { total_.add(fmt::format("{} {}\n", name, numel)); }
  /// Behind all tensors. number: of the stretch among those of all tensors.
  void add_stretch(int64_t number, const std::string& hash) { add_line(stretch_line(number, hash)); }
  void add_line(const std::string& line) { total_.add(line + "\n"); }
  std::string hex() { return total_.hex(); }

  static std::string stretch_line(int64_t number, const std::string& hash) {
    return fmt::format("{:012} {}", number, hash);
  }

 private:
  Sha256 total_;
};

std::string hash_values(std::span<float> values) {
  for (float& value : values) value += 0.0F;  // sums of several ranks have no negative zero
  return Sha256().add(std::as_bytes(values)).hex();
}

/// All tensors by name, of which read() fills elements.
std::string hash_tensors(const std::map<std::string, int64_t>& tensors, DType dtype,
                         const std::function<void(const std::string&, Interval, const Tensor&)>& read) {
  const auto memory = Memory::create();
  TotalHash total;
  for (const auto& [name, numel] : tensors) total.add_tensor(name, numel);
  int64_t number = 0;
  for (const auto& [name, numel] : tensors)
    for (int64_t i = 0; i < ceil_div(numel, kStretch); ++i) {
      const Interval stretch = stretch_of(i, numel);
      const Tensor values = Tensor::empty(*memory, {stretch.size()}, dtype, Category::checkpoint);
      read(name, stretch, values);
      std::vector<float> widened = values.to_vector<float>();
      total.add_stretch(number++, hash_values(widened));
    }
  return total.hex();
}

/// A line for each stretch that this rank hashes: its number among all, and its hash. Collective.
std::string lines_of_stretches(const std::map<std::string, OwnedTensor>& own,
                               const std::map<std::string, KnownTensor>& all, const Context& context,
                               Communicator& ranks) {
  StretchHasher hasher(context, ranks);
  std::string mine;
  int64_t number = 0;
  for (const auto& [name, tensor] : all) {
    const auto there = own.find(name);
    for (int64_t i = 0; i < ceil_div(tensor.numel, kStretch); ++i, ++number) {
      const Interval stretch = stretch_of(i, tensor.numel);
      const auto whole = tensor.whole.find(i);
      std::string hash;
      if (whole == tensor.whole.end())
        hash = hasher.of_parts(there == own.end() ? nullptr : &there->second, stretch,
                               static_cast<int>(number % ranks.size()));
      else if (whole->second == ranks.rank())
        hash = hasher.of_whole(there->second, stretch);
      if (!hash.empty()) mine += TotalHash::stretch_line(number, hash) + "\n";
    }
  }
  return mine;
}

}  // namespace

HashRoom::HashRoom(const Context& context, int ranks) {
  Memory& memory = *context.memory;
  read = Tensor::empty(memory, {kElements * size_of(DType::f32)}, DType::u8, Category::workspace, memory.host_pool());
  if (ranks > 1) sum = context.empty({kElements}, DType::f32, Category::communication);
}

std::string hash_weights(ShardedModel& model, bool with_frozen) {
  Communicator& ranks = model.mesh().world();
  const Context& context = model.context();
  model.settle();
  const std::vector<OwnedPiece> pieces = owned_pieces(model, nullptr, with_frozen);
  const std::map<std::string, OwnedTensor> own = own_tensors(pieces, model.mesh());
  const std::map<std::string, KnownTensor> all = all_tensors(ranks, context, own);
  const std::string mine = lines_of_stretches(own, all, context, ranks);
  std::set<std::string> stretches;  // in the order of their numbers
  for (const std::string& text : texts_of_ranks(ranks, context, mine))
    for (std::string& line : split(text, '\n'))
      if (!line.empty()) stretches.insert(std::move(line));
  TotalHash total;
  for (const auto& [name, tensor] : all) total.add_tensor(name, tensor.numel);
  for (const std::string& line : stretches) total.add_line(line);
  return total.hex();
}

std::string hash_weights(const Checkpoint& checkpoint, DType dtype) {
  std::map<std::string, int64_t> tensors;
  for (const auto& [name, shape] : checkpoint.shapes()) tensors[name] = shape.numel();
  return hash_tensors(tensors, dtype, [&](const std::string& name, Interval elements, const Tensor& into) {
    Parameter parameter;
    parameter.name = name;
    checkpoint.fill(StateKind::master, parameter, elements, into);
  });
}

std::string hash_weights(const StateSource& source, const Model& model, DType dtype,
                         const std::function<bool(const Parameter&)>& counts) {
  std::map<std::string, int64_t> tensors;
  std::map<std::string, const Parameter*> parameters;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      if (counts && !counts(parameter)) continue;
      tensors[parameter.name] = parameter.placement.global.numel();
      parameters[parameter.name] = &parameter;
    }
  return hash_tensors(tensors, dtype, [&](const std::string& name, Interval elements, const Tensor& into) {
    source.fill(StateKind::master, *parameters.at(name), elements, into);
  });
}

}  // namespace nought

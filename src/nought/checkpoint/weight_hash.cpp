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

/// Hashes stretches on one rank.
class StretchHasher {
 public:
  StretchHasher(const Context& training, Communicator& ranks)
      : training_(training), host_(host_context(training)), ranks_(ranks) {}

  /// All elements of the stretch are here.
  std::string of_whole(const OwnedTensor& tensor, Interval stretch) {
    std::vector<float> values(static_cast<size_t>(stretch.size()));
    add(tensor, stretch, values);
    return hash(values);
  }
  /// Ranks have parts of it. Collective; null: this rank has none. Returns the hash on `hashed_by` alone.
  std::string of_parts(const OwnedTensor* tensor, Interval stretch, int hashed_by) {
    std::vector<float> values(static_cast<size_t>(stretch.size()));
    if (tensor != nullptr) add(*tensor, stretch, values);
    const Tensor sum = training_.upload<float>({stretch.size()}, values, Category::communication);
    ranks_.all_reduce(sum).wait();
    if (ranks_.rank() != hashed_by) return "";
    values = training_.to_host<float>(sum);
    return hash(values);
  }

 private:
  /// Adds what this rank has, for elements that no other run has.
  void add(const OwnedTensor& tensor, Interval stretch, std::span<float> values) {
    for (const OwnedTensor::Run& run : tensor.runs) {
      const Interval global = intersect(run.global, stretch);
      if (global.size() == 0) continue;
      const int64_t first = run.in_piece.begin + global.begin - run.global.begin;
      read(*run.piece, {first, first + global.size()},
           values.subspan(static_cast<size_t>(global.begin - stretch.begin)));
    }
  }
  void read(const OwnedPiece& piece, Interval elements, std::span<float> into) {
    // Runs of a cut matrix are short: what is read is a stretch of the piece, and kept for the next run.
    if (kept_ != &piece || elements.begin < at_.begin || elements.end > at_.end) {
      const int64_t size = piece.in_parameter.size();
      at_ = piece.whole ? Interval{0, size} : Interval{elements.begin, std::min(size, elements.begin + kStretch)};
      kept_ = &piece;
      values_ = values_of(piece, at_);
    }
    std::copy_n(values_.begin() + (elements.begin - at_.begin), elements.size(), into.begin());
  }
  std::vector<float> values_of(const OwnedPiece& piece, Interval elements) {
    if (piece.held) return piece.held.flat(elements.begin, elements.end).to_vector<float>();
    Memory& memory = *training_.memory;
    const Tensor values =
        Tensor::empty(memory, {elements.size()}, piece.dtype, Category::workspace, memory.host_pool());
    const Context& by = piece.on_host ? host_ : training_;
    piece.read(by, elements, values);
    by.stream->synchronize();
    return values.to_vector<float>();
  }
  static std::string hash(std::span<float> values) {
    for (float& value : values) value += 0.0F;  // sums of several ranks have no negative zero
    return Sha256().add(std::as_bytes(values)).hex();
  }

  const Context& training_;
  Context host_;
  Communicator& ranks_;
  const OwnedPiece* kept_ = nullptr;
  Interval at_ = {};
  std::vector<float> values_;
};

}  // namespace

std::string hash_weights(ShardedModel& model, bool with_frozen) {
  Communicator& ranks = model.mesh().world();
  const Context& context = model.context();
  model.settle();
  const std::vector<OwnedPiece> pieces = owned_pieces(model, nullptr, with_frozen);
  const std::map<std::string, OwnedTensor> own = own_tensors(pieces, model.mesh());
  const std::map<std::string, KnownTensor> all = all_tensors(ranks, context, own);
  StretchHasher hasher(context, ranks);
  std::string mine;  // a line for each stretch that this rank hashes: its number among all, and its hash
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
      if (!hash.empty()) mine += fmt::format("{:012} {}\n", number, hash);
    }
  }
  std::set<std::string> stretches;  // in the order of their numbers
  for (const std::string& text : texts_of_ranks(ranks, context, mine))
    for (std::string& line : split(text, '\n'))
      if (!line.empty()) stretches.insert(std::move(line));
  Sha256 total;
  for (const auto& [name, tensor] : all) total.add(fmt::format("{} {}\n", name, tensor.numel));
  for (const std::string& line : stretches) total.add(line + "\n");
  return total.hex();
}

}  // namespace nought

#include "nought/io/model_ranks.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/io/strict_json.h"

namespace nought {

namespace {

/// Modules whose one tensor has the rows of several layers, each of which was cut.
constexpr std::string_view kJoinedLayers[] = {"c_attn",  "qkv_proj",     "Wqkv",        "gate_up_proj",
                                              "in_proj", "in_proj_qkvz", "in_proj_qkv", "in_proj_ba"};
constexpr const char* kMerge = "DeepSpeed's ds_to_universal.py merges the ranks, and what it writes is read";

/// "model.layers.0.mlp.gate_up_proj.weight"
bool is_of_joined_layers(std::string_view name) {
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    if (std::ranges::count(kJoinedLayers, name.substr(begin, end - begin)) > 0) return true;
    begin = end + 1;
  }
  return false;
}

/// How the slices of a tensor lie in it.
struct Cut {
  std::optional<int> dim = {};  // along which it was cut; not given: every rank has the whole
  Shape whole = {};
  std::string unknown = {};  // why nobody can tell
};

bool joins_along(int dim, const std::vector<Shape>& slices, const Shape& whole) {
  int64_t together = 0;
  for (const Shape& slice : slices) {
    if (slice.rank() != whole.rank()) return false;
    for (int i = 0; i < whole.rank(); ++i)
      if (i != dim && slice[i] != whole[i]) return false;
    together += slice[dim];
  }
  return together == whole[dim];
}

Cut cut_of(const std::string& name, const std::vector<Shape>& slices, const std::optional<Shape>& whole) {
  if (!whole) return {.unknown = "neither a config.json nor the checkpoint tells its whole shape"};
  if (std::ranges::count(slices, *whole) == std::ssize(slices)) return {.whole = *whole};
  for (int dim = 0; dim < whole->rank(); ++dim) {
    if (!joins_along(dim, slices, *whole)) continue;
    if (is_of_joined_layers(name)) return {.unknown = "it holds several layers, and each of them was cut"};
    return {.dim = dim, .whole = *whole};
  }
  return {.unknown = fmt::format("slices {} do not join to {}", fmt::join(slices, ", "), *whole)};
}

/// Where the elements of a slice, flattened, lie in the whole tensor: rows of `row` elements, `stride` after each
/// other.
struct SlicePlace {
  int64_t first = 0, row = 0, stride = 0;
};

/// Appends a piece of a slice as pieces of the whole tensor: full rows together, parts of rows alone.
void append_placed(TensorPiece piece, const SlicePlace& place, int64_t element_size, std::vector<TensorPiece>& pieces) {
  while (piece.run > 0) {
    const int64_t at = piece.begin / place.row, within = piece.begin % place.row;
    const int64_t rows = within == 0 ? std::max<int64_t>(piece.run / place.row, 1) : 1;
    const int64_t run = std::min(piece.run, place.row - within), count = rows * run;
    pieces.push_back(
        {piece.file, piece.offset, place.first + at * place.stride + within, run, rows, rows > 1 ? place.stride : 0});
    piece.begin += count, piece.run -= count, piece.offset += count * element_size;
  }
}

/// The tensors of one kind, masters or moments, of every rank, and where the files of each begin.
struct RankTables {
  std::vector<const TensorPieces*> ranks = {};
  std::vector<size_t> first_files = {};

  std::vector<Shape> shapes_of(const std::string& name) const {
    std::vector<Shape> shapes;
    for (const TensorPieces* rank : ranks) shapes.push_back(rank->find(name)->shape);
    return shapes;
  }
};

std::vector<TensorPiece> joined_pieces(const std::string& name, const Cut& cut, const RankTables& tables) {
  std::vector<TensorPiece> pieces;
  int64_t inner = 1, before = 0;
  for (int i = *cut.dim + 1; i < cut.whole.rank(); ++i) inner *= cut.whole[i];
  for (size_t rank = 0; rank < tables.ranks.size(); ++rank) {
    const TensorEntry& slice = *tables.ranks[rank]->find(name);
    const SlicePlace place{before * inner, slice.shape[*cut.dim] * inner, cut.whole[*cut.dim] * inner};
    before += slice.shape[*cut.dim];
    for (TensorPiece piece : tables.ranks[rank]->pieces_of(name)) {
      piece.file += tables.first_files[rank];
      append_placed(piece, place, slice.element_size(), pieces);
    }
  }
  return pieces;
}

void require_alike(const std::string& name, const RankTables& tables) {
  for (const TensorPieces* rank : tables.ranks) {
    require<IoError>(rank->contains(name), "{}: tensor \"{}\" is of one tensor parallel rank, and not of another: {}",
                     rank->folder().string(), excerpt(name), kMerge);
    const TensorEntry &own = *rank->find(name), &first = *tables.ranks[0]->find(name);
    require<IoError>(own.dtype == first.dtype && own.packed == first.packed,
                     "{}: tensor \"{}\" differs in dtype between tensor parallel ranks", rank->folder().string(),
                     excerpt(name));
  }
}

/// Adds a tensor to `joined`, which has the files of all ranks.
void join(const std::string& name, const Cut& cut, const RankTables& tables, TensorPieces& joined) {
  const TensorPieces& first = *tables.ranks[0];
  const auto refuse = [&](const std::string& why) {
    joined.add_unread(name, fmt::format("is cut over {} tensor parallel ranks, and nothing tells how ({}): {}",
                                        tables.ranks.size(), why, kMerge));
  };
  if (!cut.unknown.empty()) return refuse(cut.unknown);
  TensorEntry entry = *first.find(name);
  entry.shape = cut.whole;
  if (cut.dim) return joined.add(entry, joined_pieces(name, cut, tables));
  for (const TensorPieces* rank : tables.ranks)
    if (!first.is_same_in(*rank, name)) return refuse("each has a whole one, and they differ");
  std::vector<TensorPiece> pieces(first.pieces_of(name).begin(), first.pieces_of(name).end());
  for (TensorPiece& piece : pieces) piece.file += tables.first_files[0];
  joined.add(entry, std::move(pieces));
}

/// As the model has it, or else as the checkpoint says.
std::optional<Shape> whole_shape(const ForeignRun& run, const std::string& name, const WholeShapes& shapes) {
  const std::optional<Shape> known = shapes ? shapes(name) : std::nullopt;
  const auto noted = run.whole_shapes.find(name);
  return known || noted == run.whole_shapes.end() ? known : std::optional(noted->second);
}

}  // namespace

ForeignRun join_model_ranks(std::span<const ForeignRun> ranks, const WholeShapes& shapes) {
  ForeignRun joined(ranks[0].weights.folder());
  RankTables weights;
  for (const ForeignRun& rank : ranks) {
    weights.first_files.push_back(joined.weights.adopt_files(rank.weights));
    weights.ranks.push_back(&rank.weights);
    require<IoError>(rank.weights.names().size() == ranks[0].weights.names().size(),
                     "{}: a tensor parallel rank has {} tensors and another one {}: {}", rank.weights.folder().string(),
                     ranks[0].weights.names().size(), rank.weights.names().size(), kMerge);
    require<IoError>(rank.updates == ranks[0].updates && rank.states.size() == ranks[0].states.size(),
                     "{}: tensor parallel ranks have made {} and {} updates: files of different steps?",
                     rank.weights.folder().string(), ranks[0].updates, rank.updates);
  }
  for (const auto& [name, why] : ranks[0].weights.unread()) joined.weights.add_unread(name, why);
  for (const TensorEntry& entry : ranks[0].weights.entries()) {
    require_alike(entry.name, weights);
    const std::vector<Shape> slices = weights.shapes_of(entry.name);
    const Cut cut = cut_of(entry.name, slices, whole_shape(ranks[0], entry.name, shapes));
    join(entry.name, cut, weights, joined.weights);
    for (const auto& [state, table] : ranks[0].states) {
      if (!table.contains(entry.name)) continue;
      RankTables of_state{.first_files = weights.first_files};
      for (const ForeignRun& rank : ranks) of_state.ranks.push_back(&rank.states.at(state));
      require_alike(entry.name, of_state);
      require<IoError>(of_state.shapes_of(entry.name) == slices, "{}: {} of tensor \"{}\" has another shape",
                       joined.weights.folder().string(), excerpt(state), excerpt(entry.name));
      join(entry.name, cut, of_state, joined.table(state));
    }
  }
  joined.writer = fmt::format("{}, {} tensor parallel ranks", ranks[0].writer, ranks.size());
  joined.optimizer = ranks[0].optimizer, joined.groups = ranks[0].groups, joined.loss_scale = ranks[0].loss_scale;
  joined.second_names = ranks[0].second_names;
  joined.updates = ranks[0].updates, joined.skipped = ranks[0].skipped, joined.scheduled = ranks[0].scheduled;
  return joined;
}

}  // namespace nought

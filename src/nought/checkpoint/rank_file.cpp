#include "nought/checkpoint/rank_file.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/checkpoint/checkpoint_rank_states.h"
#include "nought/io/files.h"
#include "nought/offload/host_context.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

std::string rank_file(int rank, std::string_view extension) { return fmt::format("rank-{:05}.{}", rank, extension); }

}  // namespace

SaveContexts::SaveContexts(const Context& training)
    : on_device(!training.memory->device().is_host()), host(host_context(training)), device(host) {
  if (on_device) device = {training.memory, training.kernels, training.memory->device().make_stream("save")};
}

RankFile::RankFile(ShardedModel& model, LocalSteps* local, bool with_frozen, const SaveRoom& room,
                   const SaveContexts& contexts, int rank, fs::path folder)
    : model_(model),
      room_(room),
      contexts_(contexts),
      rank_(rank),
      folder_(std::move(folder)),
      pieces_(owned_pieces(model, local, with_frozen)),
      places_(room.places_of(pieces_)),
      own_(model.rank_states()),
      entries_(pieces_.size(), Json::array()) {
  changes_at_once_ = !own_.empty() || std::ranges::any_of(pieces_, [](const OwnedPiece& piece) {
    return piece.stays == OwnedPiece::Stays::until_passes;
  });
}

void RankFile::copy_all() const {
  for (size_t i = 0; i < pieces_.size() && !stopped_; ++i)
    if (places_[i]) pieces_[i].read(contexts_.device, {0, pieces_[i].in_parameter.size()}, places_[i]);
}

void RankFile::begin_copies() {
  if (!contexts_.on_device) return;
  contexts_.device.stream->wait(model_.context().stream->record());
  copy_all();
  copied_ = contexts_.device.stream->record();
}

void RankFile::take() {
  if (!contexts_.on_device) copy_all();
  std::vector<TensorSpec> specs;
  for (const OwnedPiece& piece : pieces_)
    for (const OwnedBlock& block : blocks_of(piece))
      specs.push_back({block.tensor, piece.dtype, {block.in_piece.size()}});
  for (const TensorSpec& spec : specs_of(own_)) specs.push_back(spec);
  const std::string name = rank_file(rank_, "safetensors");
  writer_.emplace(folder_ / name, specs);
  own_entries_ = write_rank_states(contexts_.device, rank_, own_, name, *writer_);
  for (size_t i = 0; i < pieces_.size(); ++i)
    if (!places_[i] && pieces_[i].stays != OwnedPiece::Stays::always) write(i);
  copied_.wait();
}

void RankFile::finish() {
  for (size_t i = 0; i < pieces_.size(); ++i)
    if (places_[i] || pieces_[i].stays == OwnedPiece::Stays::always) write(i);
  writer_->finish();
  Json blocks = Json::array();
  for (Json& of_piece : entries_)
    for (Json& entry : of_piece) blocks.push_back(std::move(entry));
  write_text_atomically(folder_ / rank_file(rank_, "json"), Json{{"blocks", blocks}, {"own", own_entries_}}.dump());
}

Tensor RankFile::values(size_t index, Interval elements) const {
  const OwnedPiece& piece = pieces_[index];
  if (places_[index]) return places_[index].flat(elements.begin, elements.end);
  if (piece.held) return piece.held.flat(elements.begin, elements.end);
  Memory& memory = *model_.context().memory;
  const bool has_room = room_.block() && room_.block().numel() >= elements.size() && piece.dtype == DType::f32;
  const Tensor values =
      has_room ? room_.block().flat(0, elements.size())
               : Tensor::empty(memory, {elements.size()}, piece.dtype, Category::workspace, memory.host_pool());
  piece.read(by(piece), elements, values);
  by(piece).stream->synchronize();
  return values;
}

void RankFile::write(size_t index) {
  const OwnedPiece& piece = pieces_[index];
  const Parameter& parameter = *piece.parameter;
  const Shape& global = parameter.placement.global;
  const Json part = part_json(parameter, model_.mesh());
  const std::string file = rank_file(rank_, "safetensors");
  const Tensor whole = piece.whole ? values(index, {0, piece.in_parameter.size()}) : Tensor();
  for (const OwnedBlock& block : blocks_of(piece)) {
    require(!stopped_, "{} was not finished", (folder_ / file).string());
    const Tensor written = whole ? whole.flat(block.in_piece.begin, block.in_piece.end) : values(index, block.in_piece);
    writer_->write(block.tensor, written);
    entries_[index].push_back({{"state", piece.state},
                               {"parameter", parameter.name},
                               {"shape", std::vector<int64_t>(global.begin(), global.end())},
                               {"file", file},
                               {"tensor", block.tensor},
                               {"begin", block.in_parameter.begin},
                               {"end", block.in_parameter.end},
                               {"xxh3", xxh3_of({written.raw(), static_cast<size_t>(written.bytes())})}});
    if (!part.is_null()) entries_[index].back()["part"] = part;
    if (!parameter.trainable) entries_[index].back()["frozen"] = true;
  }
}

CheckpointEntries take_entries(int ranks, const fs::path& folder) {
  CheckpointEntries entries;
  for (int rank = 0; rank < ranks; ++rank) {
    const fs::path part = folder / rank_file(rank, "json");
    Json of_rank = Json::parse(read_bytes(part), nullptr, /*allow_exceptions=*/false);
    require<IoError>(of_rank.is_object(), "{} does not hold what a rank has just written", part.string());
    for (Json& entry : of_rank["blocks"]) entries.blocks.push_back(std::move(entry));
    for (Json& entry : of_rank["own"]) entries.own.push_back(std::move(entry));
    fs::remove(part);
  }
  return entries;
}

}  // namespace nought

#include "nought/parallel/vocabulary_tiles.h"

#include <memory>
#include <utility>

#include "nought/autograd/detail.h"
#include "nought/parallel/split_softmax.h"

namespace nought {

VocabularyTiles add_vocabulary_tiles(std::span<Unit* const> tiles, const std::string& name, const Shape& table,
                                     Init init, ParameterRole role) {
  VocabularyTiles all;
  const auto count = static_cast<int>(tiles.size());
  for (int index = 0; index < count; ++index) {
    Unit& unit = *tiles[static_cast<size_t>(index)];
    const TensorTile tile = tile_of(table, 0, {}, index, count);
    require(!tile.kept.empty(), "tile {} of {} of a table {} has no rows", index, count, table);
    const Placement placement{.global = table, .tile = tile};
    const ParameterOptions options{.role = role, .placement = placement};
    all.push_back({&unit, unit.add(name, placement.extents(), init, options), tile.kept.front()});
  }
  return all;
}

std::vector<HeldIds> ids_of_tiles(const Context& context, std::span<const int32_t> ids, const VocabularyTiles& tiles) {
  std::vector<HeldIds> all;
  for (const VocabularyTile& tile : tiles) all.push_back(held_ids(context, ids, tile.held));
  return all;
}

Var tiled_embedding(Tape& tape, const std::vector<HeldIds>& ids, const VocabularyTiles& tiles) {
  Var sum;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const auto body = [&](Tape& on, const Var&) { return vocabulary_embedding(on, ids[i], tiles[i].table, {}); };
    const Var part = tape.run_tile(*tiles[i].unit, {}, body, {});
    sum = i == 0 ? part : add_to(tape, sum, part);
  }
  return sum;
}

Tensor tiled_logits(Tape& tape, const Var& x, const VocabularyTiles& tiles) {
  const Context& context = tape.context();
  const int64_t tokens = x.value.rows(), vocabulary = tiles.back().held.end;
  const Tensor logits = context.empty({tokens, vocabulary}, x.value.dtype());
  for (const VocabularyTile& tile : tiles) {
    const auto body = [&](Tape& on, const Var& in) { return linear(on, in, tile.table, {}, WeightLayout::out_in); };
    const Tensor part = tape.run_tile(*tile.unit, Tape::constant(x.value), body, {}).value;
    const int64_t width = tile.held.size();
    context.run(CopyHeads{.from = {part, 0, width},
                          .to = {logits, tile.held.begin, vocabulary},
                          .tokens = tokens,
                          .num_heads = 1,
                          .head_dim = width});
  }
  return logits;
}

TiledTargets targets_of_tiles(const Context& context, std::span<const int32_t> targets, Tensor weights,
                              const VocabularyTiles& tiles) {
  require<ShapeError>(!weights.defined() || weights.numel() == static_cast<int64_t>(targets.size()),
                      "{} targets but {} weights", targets.size(), weights.numel());
  TiledTargets all;
  const auto holds = [](const VocabularyTile& tile, int32_t id) { return tile.held.begin <= id && id < tile.held.end; };
  for (const VocabularyTile& tile : tiles) {
    const auto row_or = [&](int32_t elsewhere) {
      return mapped_ids(context, targets, [&tile, &holds, elsewhere](int32_t, int32_t id) {
        if (holds(tile, id)) return id - static_cast<int32_t>(tile.held.begin);
        return id == kIgnoredId ? kIgnoredId : elsewhere;
      });
    };
    all.in_tile.push_back(row_or(kIgnoredId));
    all.beside.push_back(row_or(static_cast<int32_t>(tile.held.size())));
  }
  all.tile.push_back(mapped_ids(context, targets, [&](int32_t, int32_t id) {
    for (size_t i = 0; i < tiles.size(); ++i)
      if (holds(tiles[i], id)) return static_cast<int32_t>(i);
    require<ShapeError>(id == kIgnoredId, "target {} is no token of {}", id, tiles.back().held.end);
    return kIgnoredId;
  }));
  all.weights = std::move(weights);
  return all;
}

namespace {

/// The head over all tiles. A target's probability is that of its tile among the tiles, times its own within the tile.
class TiledHead : public std::enable_shared_from_this<TiledHead> {
 public:
  TiledHead(const Context& context, const Var& x, const VocabularyTiles& tiles, const TiledTargets& targets,
            double gradient_scale, double softcap)
      : tiles_(tiles),
        targets_(targets),
        scale_(gradient_scale),
        softcap_(softcap),
        tokens_(x.value.rows()),
        dtype_(statistics_dtype(x.value.dtype())),
        log_sums_(context.empty({std::ssize(tiles), tokens_}, dtype_)) {}

  /// The cross-entropies within the tile of the targets that it has: f64 [1]. Recorded with what they are in the whole.
  Var of_tile(Tape& tape, const Var& x, size_t index) const {
    const Context& context = tape.context();
    const Tensor losses = context.empty({tokens_}, dtype_, Category::workspace);
    for_each_chunk(context, x.value, index, [&](Interval rows, const Tensor& logits, const Tensor&) {
      const auto begin = static_cast<int64_t>(index) * tokens_;
      context.copy(log_sums(context, logits, dtype_), log_sums_.flat(begin + rows.begin, begin + rows.end));
      context.run(CrossEntropy{.logits = logits,
                               .targets = targets_.in_tile[index].flat(rows.begin, rows.end),
                               .loss = losses.flat(rows.begin, rows.end),
                               .weights = weights_of(rows)});
    });
    const Tensor sum = context.empty({1}, DType::f64);
    context.run(SumElements{.x = losses, .out = sum});
    return tape.record(sum, {x, tiles_[index].table},
                       [self = shared_from_this(), x, index](Gradients& gradients, const Tensor& seed) {
                         if (seed.on_host() && seed.item() != 1)  // asking a device would hold up the step
                           fail<Error>("the backward pass of a loss starts from seed 1, got {}", seed.item());
                         self->walk_back(gradients, x, index);
                       });
  }

  /// The cross-entropies of the targets' tiles, f64 [1], when all tiles have run.
  Tensor of_tiles(const Context& context) const {
    const auto count = std::ssize(tiles_);
    const Tensor logits = context.empty({tokens_, count}, dtype_, Category::workspace);
    for (int64_t tile = 0; tile < count; ++tile)
      context.run(CopyHeads{.from = {log_sums_, tile * tokens_, 1},
                            .to = {logits, tile, count},
                            .tokens = tokens_,
                            .num_heads = 1,
                            .head_dim = 1});
    const Tensor losses = context.empty({tokens_}, dtype_, Category::workspace);
    context.run(CrossEntropy{
        .logits = logits, .targets = targets_.tile.front(), .loss = losses, .weights = weights_of({0, tokens_})});
    const Tensor sum = context.empty({1}, DType::f64);
    context.run(SumElements{.x = losses, .out = sum});
    return sum;
  }

 private:
  Tensor weights_of(Interval rows) const {
    return targets_.weights.defined() ? targets_.weights.flat(rows.begin, rows.end) : Tensor{};
  }

  /// f(rows, logits, rows of x) of some tokens after others.
  template <class F>
  void for_each_chunk(const Context& context, const Tensor& x, size_t index, const F& f) const {
    const Weight table = tiles_[index].table.weight();
    const int64_t width = table.dim(0);
    const int64_t most = detail::rows_of_chunks(tokens_, width * size_of(x.dtype()), detail::chunk_bytes(context));
    const Tensor flat_x = x.reshape({tokens_, x.dim(-1)});
    const Tensor logits = context.empty({most, width}, x.dtype(), Category::workspace);
    for (int64_t begin = 0; begin < tokens_; begin += most) {
      const Interval rows{begin, std::min(begin + most, tokens_)};
      const Tensor chunk = flat_x.slice(rows.begin, rows.end), scores = logits.slice(0, rows.size());
      context.run(MatMul{.a = chunk, .b = table, .c = scores, .transpose_b = true});
      if (softcap_ > 0) context.run(Softcap{.x = scores, .cap = softcap_});
      f(rows, scores, chunk);
    }
  }

  void walk_back(Gradients& gradients, const Var& x, size_t index) const {
    const Context& context = gradients.context();
    const Weight table = tiles_[index].table.weight();
    const GradSink dx = gradients.sink(x);
    for_each_chunk(context, x.value, index, [&](Interval rows, const Tensor& logits, const Tensor& chunk) {
      Tensor capped;
      if (softcap_ > 0) {
        capped = context.empty(logits.shape(), logits.dtype(), Category::workspace);
        context.copy(logits, capped);
      }
      const auto parts = static_cast<int>(tiles_.size()), part = static_cast<int>(index);
      cross_entropy_of_part(context, logits, {log_sums_, parts, part, rows},
                            {.targets = targets_.beside[index].flat(rows.begin, rows.end),
                             .weights = weights_of(rows),
                             .losses = context.empty({rows.size()}, dtype_, Category::workspace),
                             .gradient = true,
                             .gradient_scale = scale_});
      if (capped) context.run(SoftcapBackward{.y = capped, .d = logits, .cap = softcap_});
      if (const GradSink dw = gradients.sink(tiles_[index].table))
        context.run(MatMul{.a = logits, .b = chunk, .c = dw.into, .transpose_a = true, .accumulate = dw.accumulate});
      if (dx)
        context.run(MatMul{.a = logits,
                           .b = table,
                           .c = dx.into.reshape({tokens_, x.value.dim(-1)}).slice(rows.begin, rows.end),
                           .accumulate = dx.accumulate});
    });
  }

  const VocabularyTiles tiles_;
  const TiledTargets targets_;
  double scale_, softcap_;
  int64_t tokens_;
  DType dtype_;
  Tensor log_sums_;  // [tiles, tokens]
};

}  // namespace

Var tiled_cross_entropy_head(Tape& tape, const Var& x, const VocabularyTiles& tiles, const TiledTargets& targets,
                             double gradient_scale, double softcap, bool shared) {
  const auto head = std::make_shared<TiledHead>(tape.context(), x, tiles, targets, gradient_scale, softcap);
  Var sum;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const auto body = [&](Tape& on, const Var& in) { return head->of_tile(on, in, i); };
    const Var part = tape.run_tile(*tiles[i].unit, x, body, {.shared = shared});
    sum = i == 0 ? part : add_to(tape, sum, part);
  }
  return add_to(tape, sum, Tape::constant(head->of_tiles(tape.context())));
}

}  // namespace nought

// How a decoder goes on with sequences of which a cache has the keys and values, or the states.
#include "nought/models/decoder.h"
#include "nought/models/decoder_work.h"

namespace nought {

namespace {

/// Adds the next `count` rows, which have this adapter, if any: to those before if they have the same one.
void add_rows(std::vector<AdapterRows>& all, int32_t adapter, int64_t begin, int64_t count) {
  if (adapter == kNoAdapter) return;
  const auto index = static_cast<size_t>(adapter);
  if (!all.empty() && all.back().adapter == index && all.back().rows.end == begin) {
    all.back().rows.end += count;
  } else {
    all.push_back({index, {begin, begin + count}});
  }
}

/// Gives the sequence its adapter, if it has no tokens yet.
void choose_adapter(DecoderCache& cache, const NextTokens& next, size_t choices) {
  const auto sequence = static_cast<size_t>(next.sequence);
  require(next.adapter == kNoAdapter || (0 <= next.adapter && static_cast<size_t>(next.adapter) < choices),
          "there are {} adapters, and sequence {} asks for number {}", choices, next.sequence, next.adapter);
  int32_t& adapter = cache.adapters.at(sequence);
  if (cache.ids.at(sequence).empty()) adapter = next.adapter;
  require(adapter == next.adapter, "sequence {} of the cache was computed with adapter {}, and not with {}",
          next.sequence, adapter, next.adapter);
}

}  // namespace

Tensor Decoder::next_logits(const Context& context, std::span<const NextTokens> next, DecoderCache& cache) {
  return next_rows(context, next, cache, config_.vocab_size,
                   [&](Tape& tape, const Var& rows) { return head_logits(tape, rows); });
}

Tensor Decoder::next_hidden(const Context& context, std::span<const NextTokens> next, DecoderCache& cache) {
  return next_rows(context, next, cache, config_.hidden_size,
                   [&](Tape& tape, const Var& rows) { return head_hidden(tape, rows); });
}

Tensor Decoder::next_rows(const Context& context, std::span<const NextTokens> next, DecoderCache& cache,
                          int64_t columns, const HeadOfRows& head) {
  Tape tape(context, /*recording=*/false);
  const int64_t limit = config_.rope.switch_length();
  std::vector<int32_t> fed, last;  // all tokens, and after which of them logits are asked for
  std::vector<AttentionSpan> spans;
  std::vector<AdapterRows> fed_rows, last_rows;
  for (const NextTokens& each : next) {
    choose_adapter(cache, each, config_.adapter.choices.size());
    std::vector<int32_t>& ids = cache.ids.at(static_cast<size_t>(each.sequence));
    const auto held = static_cast<int64_t>(ids.size()), length = held + static_cast<int64_t>(each.ids.size());
    require(!each.ids.empty() && length <= cache.capacity,
            "the KV cache holds {} tokens of a sequence, {} and {} more are needed", cache.capacity, held,
            each.ids.size());
    require<ConfigError>(!config_.rotates_by_row() || length <= config_.max_positions,
                         "a sequence of {} tokens exceeds the {} positions up to which a model with the rope type "
                         "\"dynamic\" generates: beyond, each length has rotations of its own",
                         length, config_.max_positions);
    ids.insert(ids.end(), each.ids.begin(), each.ids.end());
    // Beyond the limit all keys rotate otherwise: they are computed again.
    const int64_t from = held <= limit && length > limit ? 0 : held, begin = static_cast<int64_t>(fed.size());
    fed.insert(fed.end(), ids.begin() + from, ids.end());
    const int64_t rows = each.wants_every ? std::ssize(each.ids) : 1;
    add_rows(fed_rows, each.adapter, begin, length - from);
    add_rows(last_rows, each.adapter, std::ssize(last), rows);
    for (int64_t row = std::ssize(fed) - rows; row < std::ssize(fed); ++row) last.push_back(static_cast<int32_t>(row));
    spans.push_back({begin, length - from, each.sequence * cache.capacity, length});
  }
  const Tensor tokens = context.upload<int32_t>({static_cast<int64_t>(fed.size())}, fed);
  const std::shared_ptr<Work> work = work_on(context, tokens, fed, std::move(spans));
  work->cache = &cache, work->adapter_rows = std::move(fed_rows);
  return run_stages(tape, work, {std::ssize(last), columns}, [&](const Var& hidden) {
    const Tensor ends = context.empty({std::ssize(last), config_.hidden_size}, hidden.value.dtype());
    context.run(GatherRows{.x = hidden.value, .index = context.upload<int32_t>({ends.dim(0)}, last), .out = ends});
    tape.set_adapter_rows(last_rows);
    return head(tape, Tape::constant(ends));
  });
}

int64_t Decoder::keep_first(DecoderCache& cache, int64_t sequence, int64_t count) const {
  std::vector<int32_t>& ids = cache.ids.at(static_cast<size_t>(sequence));
  const int64_t limit = config_.rope.switch_length(), held = static_cast<int64_t>(ids.size());
  const bool rotated_anew = limit > 0 && held > limit && count <= limit;
  const int64_t kept = rotated_anew || (config_.keeps_states() && count < held) ? 0 : std::min(count, held);
  ids.resize(static_cast<size_t>(kept));
  return kept;
}

void Decoder::copy_first(const Context& context, DecoderCache& cache, int64_t from, int64_t to, int64_t count) const {
  require(shares_beginnings() && from != to, "sequence {} can not begin like {}", to, from);
  const std::vector<int32_t>& ids = cache.ids.at(static_cast<size_t>(from));
  require(count <= std::ssize(ids), "sequence {} has {} tokens, not {}", from, ids.size(), count);
  for (const KvCache& layer : cache.layers) layer.copy(context, from * cache.capacity, to * cache.capacity, count);
  cache.ids.at(static_cast<size_t>(to)).assign(ids.begin(), ids.begin() + count);
  cache.adapters.at(static_cast<size_t>(to)) = cache.adapters.at(static_cast<size_t>(from));
}

DecoderCache Decoder::make_cache(const Context& context, int64_t capacity, DType dtype, int64_t sequences,
                                 std::optional<DType> kv_dtype) const {
  const auto count = static_cast<size_t>(sequences);
  DecoderCache cache{
      {}, {}, capacity, std::vector<std::vector<int32_t>>(count), std::vector<int32_t>(count, kNoAdapter)};
  const PackedHeads packed = block_options().heads();
  for (const Block& block : blocks_) {
    const bool here = !block.unit->elsewhere(), attends = !block.conv && !block.delta;
    cache.layers.push_back(here && attends
                               ? make_kv_cache(context, packed, sequences * capacity, kv_dtype.value_or(dtype), dtype)
                               : KvCache{});
    const auto states = [&](const auto& layer) { return layer->make_cache(context, capacity, dtype, sequences); };
    cache.states.push_back(!here || attends ? StateCache{} : block.conv ? states(block.conv) : states(block.delta));
  }
  return cache;
}

}  // namespace nought

#include "nought/autograd/token_dispatch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "nought/comm/flight_recorder.h"
#include "nought/kernels/grouping.h"

namespace nought {

/// Which rows go to which rank, and where those that come lie in the blocks of the experts here.
struct TokenDispatch::Exchange {
  Communicator* ranks;
  RowCounts counts;  // on the way to the experts
  Tensor order;      // [rows of the blocks] i32: which of the rows that came; -1 for padding
  Tensor place;      // [rows that came] i32: the row of the blocks
  bool codes;        // tokens travel quantized
};

namespace {

/// The choices that each expert takes of each rank: [ranks][experts].
using TakenByRank = std::vector<std::vector<int64_t>>;

TakenByRank taken_by_rank(const Context& context, const ExpertRows& rows, Communicator& ranks) {
  std::vector<int64_t> own;
  for (const int64_t chosen : rows.load) own.push_back(taken_choices(chosen, rows.capacity));
  const std::vector<int32_t> narrow(own.begin(), own.end());
  const auto experts = std::ssize(own);
  const Tensor mine = context.upload<int32_t>({experts}, narrow, Category::workspace);
  const Tensor all = context.empty({ranks.size() * experts}, DType::i32, Category::workspace);
  ranks.wait(ranks.all_gather(mine, all), *context.stream);
  if (context.memory->is_virtual()) return TakenByRank(static_cast<size_t>(ranks.size()), own);
  const std::vector<int64_t> counts = context.to_host<int64_t>(all);
  TakenByRank taken;
  for (auto begin = counts.begin(); begin != counts.end(); begin += experts) taken.emplace_back(begin, begin + experts);
  return taken;
}

/// What the experts of one rank take of another one's choices.
std::span<const int64_t> taken_of(const TakenByRank& taken, size_t from, size_t to) {
  const size_t held = taken[from].size() / taken.size();
  return std::span(taken[from]).subspan(to * held, held);
}

int64_t sum_of(std::span<const int64_t> counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

RowCounts row_counts(const TakenByRank& taken, size_t own) {
  RowCounts counts;
  for (size_t peer = 0; peer < taken.size(); ++peer) {
    counts.sent.push_back(sum_of(taken_of(taken, own, peer)));
    counts.received.push_back(sum_of(taken_of(taken, peer, own)));
  }
  return counts;
}

/// The choices of blocks one behind the other, without padding. pair: that of each row.
std::vector<int32_t> without_padding(const std::vector<Interval>& blocks, std::span<const int64_t> taken,
                                     const std::vector<int32_t>& pair) {
  std::vector<int32_t> choices;
  for (size_t e = 0; e < blocks.size(); ++e) {
    const auto begin = pair.begin() + blocks[e].begin;
    choices.insert(choices.end(), begin, begin + taken[e]);
  }
  return choices;
}

/// How rows that come by rank, then expert, are put into blocks of experts, by rank.
struct Sorting {
  std::vector<Interval> blocks;
  std::vector<int32_t> order, place;  // those of Exchange
};
Sorting sort_by_expert(const TakenByRank& taken, size_t own) {
  Sorting sorting;
  std::vector<int64_t> next;  // the row of each rank that is placed next
  int64_t end = 0;
  for (size_t peer = 0; peer < taken.size(); ++peer)
    next.push_back(std::exchange(end, end + sum_of(taken_of(taken, peer, own))));
  sorting.place.resize(static_cast<size_t>(end));
  for (size_t e = 0; e < taken_of(taken, own, own).size(); ++e) {
    const int64_t begin = std::ssize(sorting.order);
    for (size_t peer = 0; peer < taken.size(); ++peer)
      for (int64_t i = 0; i < taken_of(taken, peer, own)[e]; ++i) {
        sorting.place[static_cast<size_t>(next[peer])] = static_cast<int32_t>(sorting.order.size());
        sorting.order.push_back(static_cast<int32_t>(next[peer]++));
      }
    const int64_t rows = padded_rows(std::ssize(sorting.order) - begin);
    sorting.order.resize(static_cast<size_t>(begin + rows), -1);
    sorting.blocks.push_back({begin, begin + rows});
  }
  return sorting;
}

/// The values where kernels read them. Where memory is only counted there is nothing to read.
Tensor placed(const Context& context, Shape shape, const std::vector<int32_t>& values) {
  Tensor tensor = context.empty(shape, DType::i32);
  if (!context.memory->is_virtual()) context.upload<int32_t>(values, tensor);
  return tensor;
}

Tensor gather_rows(const Context& context, const Tensor& x, const Tensor& index) {
  Tensor out = context.empty({index.numel(), x.dim(-1)}, x.dtype(), Category::workspace);
  context.run(GatherRows{.x = x, .index = index, .out = out});
  return out;
}

Tensor exchange_rows(const Context& context, Communicator& ranks, const Tensor& x, RowCounts counts) {
  const FlightSubject subject(ranks, "tokens");
  Tensor out = context.empty({sum_of(counts.received), x.dim(-1)}, x.dtype(), Category::workspace);
  ranks.wait(ranks.all_to_all_v(x, out, std::move(counts)), *context.stream);
  return out;
}

/// Exchanges rows quantized to 8 bits: each row is a record.
Tensor exchange_quantized(const Context& context, Communicator& ranks, const Tensor& x, RowCounts counts) {
  constexpr int kBits = 8;
  const int64_t width = x.dim(-1), bytes = wire_record_bytes(width, kBits), sent = x.dim(0);
  require<ShapeError>(width % 4 == 0,
                      "rows of {} elements cannot travel quantized to 8 bits: they take a multiple of 4", width);
  const Tensor records = context.empty({sent, bytes}, DType::u8, Category::workspace);
  if (sent > 0) context.run(EncodeWire{.x = x, .records = records, .bits = kBits, .parts = sent});
  const Tensor came = exchange_rows(context, ranks, records, std::move(counts));
  Tensor out = context.empty({came.dim(0), width}, x.dtype(), Category::workspace);
  if (came.dim(0) > 0) context.run(DecodeWire{.records = came, .y = out, .bits = kBits, .parts = came.dim(0)});
  return out;
}

}  // namespace

TokenDispatch::TokenDispatch(ExpertRows rows)
    : token_(std::move(rows.token)),
      choice_(std::move(rows.pair)),
      row_(std::move(rows.row)),
      blocks_(std::move(rows.blocks)),
      most_(rows.most) {}

TokenDispatch::TokenDispatch(const Context& context, const ExpertRows& rows, Communicator& ranks, bool codes) {
  require<ShapeError>(rows.load.size() % static_cast<size_t>(ranks.size()) == 0,
                      "{} experts do not divide over {} ranks", rows.load.size(), ranks.size());
  const FlightSubject subject(ranks, "tokens");
  const TakenByRank taken = taken_by_rank(context, rows, ranks);
  const auto own = static_cast<size_t>(ranks.rank());
  RowCounts counts = row_counts(taken, own);
  std::vector<int32_t> choices(static_cast<size_t>(sum_of(counts.sent)));
  if (!context.memory->is_virtual())
    choices = without_padding(rows.blocks, taken[own], context.to_host<int32_t>(rows.pair));
  std::vector<int32_t> tokens, places(static_cast<size_t>(rows.row.numel()), -1);
  for (const int32_t choice : choices) {
    places[static_cast<size_t>(choice)] = static_cast<int32_t>(tokens.size());
    tokens.push_back(choice / static_cast<int32_t>(rows.row.dim(-1)));
  }
  token_ = placed(context, {std::ssize(tokens)}, tokens);
  choice_ = placed(context, {std::ssize(choices)}, choices);
  row_ = placed(context, rows.row.shape(), places);
  Sorting sorting = sort_by_expert(taken, own);
  blocks_ = std::move(sorting.blocks);
  exchange_ = std::make_shared<Exchange>(Exchange{.ranks = &ranks,
                                                  .counts = std::move(counts),
                                                  .order = placed(context, {std::ssize(sorting.order)}, sorting.order),
                                                  .place = placed(context, {std::ssize(sorting.place)}, sorting.place),
                                                  .codes = codes});
}

Tensor TokenDispatch::make_rows(const Context& context, int64_t width, DType dtype, Category category) const {
  return context.empty({std::max(most_, rows()), width}, dtype, category).slice(0, rows());
}

Tensor TokenDispatch::into_blocks(const Context& context, const Tensor& x, const Tensor& index,
                                  Category category) const {
  Tensor out = make_rows(context, x.dim(-1), x.dtype(), category);
  context.run(GatherRows{.x = x, .index = index, .out = out});
  return out;
}

Tensor TokenDispatch::to_experts(const Context& context, const Tensor& x, const Tensor& index, Category category,
                                 bool codes) const {
  if (!exchange_) return into_blocks(context, x, index, category);
  const auto exchange = codes ? exchange_quantized : exchange_rows;
  const Tensor rows = exchange(context, *exchange_->ranks, gather_rows(context, x, index), exchange_->counts);
  return into_blocks(context, rows, exchange_->order, category);
}

Tensor TokenDispatch::from_experts(const Context& context, const Tensor& y) const {
  if (!exchange_) return y;
  const Tensor rows = gather_rows(context, y, exchange_->place);
  return exchange_rows(context, *exchange_->ranks, rows, {exchange_->counts.received, exchange_->counts.sent});
}

Tensor TokenDispatch::rows_of_tokens(const Context& context, const Tensor& x, Category category) const {
  return to_experts(context, x, token_, category, exchange_ && exchange_->codes);
}

Tensor TokenDispatch::rows_of_choices(const Context& context, const Tensor& values) const {
  return to_experts(context, values.reshape({values.numel(), 1}), choice_, Category::workspace, /*codes=*/false);
}

void TokenDispatch::sum_to_tokens(const Context& context, const Tensor& y, const GradSink& out,
                                  const Tensor& weights) const {
  context.run(CombineRows{
      .x = from_experts(context, y), .index = row_, .out = out.into, .weights = weights, .accumulate = out.accumulate});
}

void TokenDispatch::give_to_choices(const Context& context, const Tensor& y, const GradSink& out) const {
  const Shape choices{out.into.numel(), 1};
  context.run(CombineRows{.x = from_experts(context, y),
                          .index = row_.reshape(choices),
                          .out = out.into.reshape(choices),
                          .accumulate = out.accumulate});
}

}  // namespace nought

#include "nought/zero/one_bit_exchange.h"

#include <algorithm>

namespace nought {

namespace {

constexpr int64_t kScale = 4;  // bytes

int64_t bytes_of_one_bit(const Interval& elements) { return ceil_div(elements.size(), 8); }

}  // namespace

OneBitExchange::OneBitExchange(const Context& context, Communicator& ranks, const Partition& partition,
                               const std::vector<Interval>& pieces)
    : context_(context),
      ranks_(ranks),
      partition_(partition),
      worker_error_(context.zeros({partition.padded()}, DType::f32, Category::optimizer)),
      server_error_(context.zeros({partition.shard()}, DType::f32, Category::optimizer)) {
  for (int rank = 0; rank < partition_.ranks(); ++rank) {
    const Interval owned = partition_.owned(rank);
    std::vector<Interval> mine;
    for (const Interval& piece : pieces)
      if (owned.begin <= piece.begin && piece.end <= owned.end && !piece.empty()) mine.push_back(piece);
    int64_t bits = kScale * static_cast<int64_t>(mine.size());
    for (size_t i = 0; i < mine.size(); ++i) {
      pieces_.push_back({mine[i], rank, kScale * static_cast<int64_t>(i), bits});
      bits += bytes_of_one_bit(mine[i]);
    }
    message_ = std::max(message_, round_up(bits, kScale));
  }
  require(pieces_.size() == pieces.size(), "a piece that shares a scale lies in the shards of several ranks");
}

Tensor OneBitExchange::scale_in(const Piece& piece, const Tensor& messages, int64_t message) const {
  const int64_t begin = message + piece.scale;
  return messages.flat(begin, begin + kScale).reinterpret(DType::f32);
}

Tensor OneBitExchange::bits_in(const Piece& piece, const Tensor& messages, int64_t message) const {
  const int64_t begin = message + piece.bits;
  return messages.flat(begin, begin + bytes_of_one_bit(piece.elements));
}

void OneBitExchange::encode(const Piece& piece, const Tensor& x, const Tensor& error, const Tensor& messages,
                            int64_t message) const {
  context_.run(OneBitEncode{
      .x = x, .error = error, .bits = bits_in(piece, messages, message), .scale = scale_in(piece, messages, message)});
}

void OneBitExchange::decode(const Piece& piece, const Tensor& messages, int64_t message, const Tensor& y, double factor,
                            bool accumulate) const {
  context_.run(OneBitDecode{.bits = bits_in(piece, messages, message),
                            .scale = scale_in(piece, messages, message),
                            .y = y,
                            .factor = factor,
                            .accumulate = accumulate});
}

void OneBitExchange::mean(const Tensor& values) {
  const Tensor messages = context_.zeros({partition_.ranks() * message_}, DType::u8, Category::communication);
  const Tensor received = context_.empty(messages.shape(), DType::u8, Category::communication);
  const auto part = [](const Tensor& tensor, const Interval& elements) {
    return tensor.flat(elements.begin, elements.end);
  };
  for (const Piece& piece : pieces_)
    encode(piece, part(values, piece.elements), part(worker_error_, piece.elements), messages, piece.rank * message_);
  ranks_.wait(ranks_.all_to_all(messages, received), *context_.stream);
  const Tensor mine = messages.flat(0, message_);
  answer(received, mine);
  ranks_.wait(ranks_.all_gather(mine, received), *context_.stream);
  for (const Piece& piece : pieces_)
    decode(piece, received, piece.rank * message_, part(values, piece.elements), 1, /*accumulate=*/false);
}

void OneBitExchange::answer(const Tensor& received, const Tensor& answer) {
  const int64_t first = partition_.owned(ranks_.rank()).begin;
  const Tensor sum = context_.empty({partition_.shard()}, DType::f32, Category::workspace);
  for (const Piece& piece : pieces_) {
    if (piece.rank != ranks_.rank()) continue;
    const Interval local{piece.elements.begin - first, piece.elements.end - first};
    const Tensor mean = sum.flat(local.begin, local.end);
    for (int rank = 0; rank < partition_.ranks(); ++rank)
      decode(piece, received, rank * message_, mean, 1.0 / partition_.ranks(), /*accumulate=*/rank > 0);
    encode(piece, mean, server_error_.flat(local.begin, local.end), answer, 0);
  }
}

void OneBitExchange::forget_errors() {
  context_.zero(worker_error_);
  context_.zero(server_error_);
}

}  // namespace nought

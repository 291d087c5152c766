#include "nought/zero/shard_wire.h"

#include <utility>

namespace nought {

ShardGather::ShardGather(const Context& context, const WireRanks& ranks, const Tensor& mine, const Tensor& whole,
                         int bits, const Event& ready)
    : bits_(bits), ranks_(ranks.size()) {
  if (bits == 0) {
    gather(context, ranks, mine, whole, ready);
    return;
  }
  context.stream->wait(ready);  // it is read to be encoded
  const int64_t bytes = wire_record_bytes(mine.numel(), bits);
  sent_ = context.empty({bytes}, DType::u8, Category::communication);
  context.run(EncodeWire{.x = mine, .records = sent_, .bits = bits});
  records_ = context.empty({ranks_ * bytes}, DType::u8, Category::communication);
  gather(context, ranks, sent_, records_, {});
}

void ShardGather::gather(const Context& context, const WireRanks& ranks, const Tensor& mine, const Tensor& whole,
                         const Event& ready) {
  if (!ranks.over_hosts) {
    ranks.all->follow(ready);
    event_ = ranks.all->all_gather(mine, whole);
    waits_ = ranks.all;
    return;
  }
  const auto& [inside, across] = *ranks.over_hosts;
  const int64_t shard = mine.numel(), of_host = inside->size() * shard;
  across->follow(ready);
  of_hosts_ = context.empty({across->size() * shard}, mine.dtype(),
                            bits_ == 0 ? Category::parameters : Category::communication);
  inside->follow(across->all_gather(mine, of_hosts_));
  for (int host = 0; host < across->size(); ++host)
    event_ = inside->all_gather(of_hosts_.flat(host * shard, (host + 1) * shard),
                                whole.flat(host * of_host, (host + 1) * of_host));
  waits_ = inside;
}

void ShardGather::finish(const Context& context, const Tensor& whole) {
  if (waits_ == nullptr) return;
  waits_->wait(event_, *context.stream);
  if (records_) context.run(DecodeWire{.records = records_, .y = whole, .bits = bits_, .parts = ranks_});
  *this = {};
}

WireErrors make_wire_errors(const Context& context, const WireRanks& ranks, int64_t numel, DType dtype) {
  WireErrors errors;
  errors.first = context.zeros({numel}, dtype, Category::gradients);
  errors.count = Tensor::zeros(*context.memory, {1}, DType::i64, Category::gradients, context.memory->host_pool());
  if (ranks.over_hosts)
    errors.second = context.zeros({ranks.hosts() * (numel / ranks.size())}, DType::f32, Category::gradients);
  return errors;
}

int64_t WireErrors::next() const {
  if (count.raw() == nullptr) return 0;
  return count.data<int64_t>()[0]++;
}

ShardReduction::ShardReduction(const Context& context, const WireRanks& ranks, const WireOptions& options,
                               const Tensor& whole, Tensor sum, WireErrors* errors)
    : context_(context), ranks_(ranks), options_(options), sum_(std::move(sum)), errors_(errors) {
  if (errors_ != nullptr && errors_->next() % options_.feedback->reset == 0) {
    context_.zero(errors_->first);
    if (errors_->second) context_.zero(errors_->second);
  }
  const Tensor records = records_of(ranks_.size());
  EncodeWire encode = encoding(whole, records, errors_ != nullptr ? errors_->first : Tensor());
  encode.parts = ranks_.size(), encode.hosts = ranks_.hosts();
  context_.run(encode);
  exchange(ranks_.over_hosts ? *ranks_.over_hosts->inside : *ranks_.all, records);
}

EncodeWire ShardReduction::encoding(const Tensor& x, const Tensor& records, const Tensor& error) const {
  return {.x = x,
          .records = records,
          .error = error,
          .bits = options_.gradient_bits,
          .beta = options_.feedback ? options_.feedback->beta : 0};
}

Tensor ShardReduction::records_of(int64_t parts) const {
  return context_.empty({parts * wire_record_bytes(sum_.numel(), options_.gradient_bits)}, DType::u8,
                        Category::communication);
}

void ShardReduction::exchange(Communicator& ranks, const Tensor& records) {
  sent_ = records;
  received_ = context_.empty(records.shape(), DType::u8, Category::communication);
  event_ = ranks.all_to_all(sent_, received_);
  waits_ = &ranks;
}

void ShardReduction::cross() {
  if (std::exchange(crossed_, true) || !ranks_.over_hosts) return;
  const auto& [inside, across] = *ranks_.over_hosts;
  waits_->wait(event_, *context_.stream);
  const Tensor sums = context_.empty({across->size() * sum_.numel()}, DType::f32, Category::communication);
  context_.run(DecodeWire{.records = received_,
                          .y = sums,
                          .bits = options_.gradient_bits,
                          .parts = across->size(),
                          .terms = inside->size()});
  sent_ = received_ = {};
  const Tensor records = records_of(across->size());
  EncodeWire encode = encoding(sums, records, errors_ != nullptr ? errors_->second : Tensor());
  encode.parts = across->size();
  context_.run(encode);
  exchange(*across, records);
}

void ShardReduction::complete() {
  cross();
  waits_->wait(event_, *context_.stream);
  context_.run(DecodeWire{.records = received_, .y = sum_, .bits = options_.gradient_bits, .terms = waits_->size()});
  sent_ = received_ = {};
}

}  // namespace nought

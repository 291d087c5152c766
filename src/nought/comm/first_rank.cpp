#include "nought/comm/first_rank.h"

#include <cstring>

namespace nought {

std::string found_by_first(Communicator& ranks, const Context& context, const std::function<std::string()>& find) {
  std::string text;
  if (ranks.rank() == 0) text = find();
  if (ranks.size() == 1) return text;
  const Tensor length = context.empty({1}, DType::i64, Category::communication);
  *length.data<int64_t>() = static_cast<int64_t>(text.size());
  ranks.broadcast(length, 0).wait();
  text.resize(static_cast<size_t>(*length.data<int64_t>()));
  if (text.empty()) return text;
  const Tensor bytes = context.empty({static_cast<int64_t>(text.size())}, DType::u8, Category::communication);
  if (ranks.rank() == 0) std::memcpy(bytes.raw(), text.data(), text.size());
  ranks.broadcast(bytes, 0).wait();
  std::memcpy(text.data(), bytes.raw(), text.size());
  return text;
}

}  // namespace nought

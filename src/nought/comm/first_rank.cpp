#include "nought/comm/first_rank.h"

#include <span>
#include <vector>

namespace nought {

std::string found_by_first(Communicator& ranks, const Context& context, const std::function<std::string()>& find) {
  std::string text;
  if (ranks.rank() == 0) text = find();
  if (ranks.size() == 1) return text;
  const auto size = static_cast<int64_t>(text.size());
  const Tensor length = context.upload({1}, std::span(&size, 1), Category::communication);
  ranks.broadcast(length, 0).wait();
  text.resize(context.to_host<size_t>(length).front());
  if (text.empty()) return text;
  const Tensor bytes = context.empty({static_cast<int64_t>(text.size())}, DType::u8, Category::communication);
  if (ranks.rank() == 0) upload_bytes(std::as_bytes(std::span(text)), bytes, *context.stream);
  ranks.broadcast(bytes, 0).wait();
  const std::vector<char> found = context.to_host<char>(bytes);
  return {found.begin(), found.end()};
}

}  // namespace nought

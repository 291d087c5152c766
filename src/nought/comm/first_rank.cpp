#include "nought/comm/first_rank.h"

#include <algorithm>
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

std::vector<std::string> texts_of_ranks(Communicator& ranks, const Context& context, const std::string& mine) {
  const int64_t count = ranks.size(), size = static_cast<int64_t>(mine.size());
  const Tensor length = context.upload({1}, std::span(&size, 1), Category::communication);
  const Tensor lengths = context.empty({count}, DType::i64, Category::communication);
  ranks.all_gather(length, lengths).wait();
  const auto sizes = context.to_host<int64_t>(lengths);
  const int64_t room = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::string> texts(sizes.size());
  if (room == 0) return texts;
  std::vector<uint8_t> padded(mine.begin(), mine.end());
  padded.resize(static_cast<size_t>(room));
  const Tensor own = context.upload<uint8_t>({room}, padded, Category::communication);
  const Tensor all = context.empty({count * room}, DType::u8, Category::communication);
  ranks.all_gather(own, all).wait();
  const auto bytes = context.to_host<uint8_t>(all);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(rank) * room;
    texts[rank].assign(begin, begin + sizes[rank]);
  }
  return texts;
}

}  // namespace nought

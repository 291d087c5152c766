#include "nought/comm/common_isa.h"

#include <algorithm>

#include "nought/base/error.h"
#include "nought/kernels/isa.h"

namespace nought {

std::string use_common_isa(Communicator& ranks, const Context& context, const std::vector<std::string>& hosts) {
  const auto mine = static_cast<int64_t>(isa());
  const Tensor sent = context.upload({1}, std::span(&mine, 1), Category::communication);
  const Tensor all = context.empty({ranks.size()}, DType::i64, Category::communication);
  ranks.all_gather(sent, all).wait();
  const auto values = context.to_host<int64_t>(all);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const auto common = static_cast<Isa>(*least);
  limit_isa(common);
  if (*least == *most) return {};
  const auto rank = static_cast<size_t>(least - values.begin());
  return fmt::format(
      "ranks differ in their instruction sets: rank {}{} has {}, others have {}; all use {}, so that "
      "replicas stay equal to the bit",
      rank, rank < hosts.size() ? " on " + hosts[rank] : "", name_of(common), name_of(static_cast<Isa>(*most)),
      name_of(common));
}

}  // namespace nought

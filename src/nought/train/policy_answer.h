// PolicyAnswer: an answer that a model wrote to a prompt, and what is known of it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace nought {

struct PolicyAnswer {
  std::vector<int32_t> ids;  // with its prompt
  int64_t begin = 0;         // where it begins
  int64_t prompt = 0;
  std::string text = {};  // what it says, on rank 0 alone
  // compared: the reward that is compared with those of others, after penalties; divergence: the logarithm of the
  // ratio of what the policy that wrote it says of it to what the reference says.
  double reward = 0, compared = 0, divergence = 0;
  std::array<double, 2> wanted{};  // its advantage, and 0 if it counts nothing: see BatchSequence
  // What the policy that wrote it says of each token, empty if it learns once; and the reference, empty without one.
  std::vector<float> written_logs = {}, known = {};

  std::span<const int32_t> written() const { return std::span(ids).subspan(static_cast<size_t>(begin)); }
};

}  // namespace nought

// InputRounding: which linear layers compute with inputs of few bits, each token's by itself, and from which step on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

/// What each row of inputs is rounded to, by what its own values reach.
enum class RowGrid : uint8_t {
  affine,      // torchao's int8 per token: all codes from the least value to the greatest, and 0 exactly
  symmetric,   // DeepSpeed's (compress/quantizers.h): codes around 0
  asymmetric,  // DeepSpeed's: codes from a zero point on
  e4m3         // floats of 8 bits, the largest magnitude at 448
};
constexpr std::string_view name_of(RowGrid grid) {
  switch (grid) {
    case RowGrid::affine:
      return "affine";
    case RowGrid::symmetric:
      return "symmetric";
    case RowGrid::asymmetric:
      return "asymmetric";
    case RowGrid::e4m3:
      return "e4m3";
  }
  return "?";
}

/// One of different_groups.
struct InputGroup {
  std::string name;
  std::vector<std::string> modules;  // regular expressions that are searched for in the names of layers
  int bits = 8;

  bool operator==(const InputGroup&) const = default;
};

struct InputRounding {
  RowGrid grid = RowGrid::affine;
  int64_t start = 0;         // updates before the first step that rounds
  std::string section = {};  // of the configuration, which messages name
  std::vector<InputGroup> groups = {};

  /// "inputs in 8 bits, a scale a token, from step 1 on".
  std::string describe(const InputGroup& group) const;
  bool operator==(const InputRounding&) const = default;
};

}  // namespace nought

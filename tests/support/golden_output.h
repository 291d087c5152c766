// What a probe gives beside what a golden file holds, by the rules of its README.
#pragma once

#include <string>

#include "support/golden.h"

#include "nought/train/probe.h"

namespace nought::test {

inline void expect_golden(const ProbeOutput& output, const std::string& golden) {
  const Context context = Context::reference();
  const SafetensorsFile expected(golden);
  for (const auto& [name, tensor] : output) {
    const Tensor want = expected.load(name, *context.memory);
    if (name == "logits") {
      EXPECT_LE(difference(tensor, want).max_abs, 5e-5);
    } else if (name == "loss") {
      EXPECT_NEAR(tensor.item(), want.item(), 5e-6);
    } else {
      expect_gradient_close(name, tensor, want, 5e-5);
    }
  }
}

/// Compares as above, and every tensor of the file but the ids and labels is there.
inline void expect_all_golden(const ProbeOutput& output, const std::string& golden) {
  EXPECT_EQ(output.size(), SafetensorsFile(golden).entries().size() - 2);
  expect_golden(output, golden);
}

}  // namespace nought::test

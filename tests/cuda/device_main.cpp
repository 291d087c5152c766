// The kernel tests on a GPU: exit code 77, and the reason, where there is none.
#include <cstdio>

#include <gtest/gtest.h>

#include "nought/cuda/backend/runtime.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const std::string reason = nought::cuda::why_no_device(); !reason.empty()) {
    constexpr int kSkipped = 77;
    std::printf("not run: %s\n", reason.c_str());
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}

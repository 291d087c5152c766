// What a machine has of CUDA: versions, devices, and reasons.
#include "nought/cuda/facts.h"

#include "support/environment.h"
#include "support/known_paths.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::cuda::facts_test {
namespace {

using ::testing::HasSubstr;

const LibrarySearch kFake{.folders = {test::known_path("fake_cuda")}, .in_system = false};

TEST(CudaFacts, versions_and_devices_are_those_of_the_libraries) {
  const CudaFacts facts = find_cuda(kFake);
  EXPECT_EQ(facts.driver.version, "12.8");
  EXPECT_EQ(facts.driver.missing, "");
  ASSERT_EQ(facts.devices.size(), 2);
  EXPECT_EQ(facts.devices[1].name, "Second GPU");
  EXPECT_EQ(facts.devices[1].memory_bytes, int64_t{80} << 30);
  EXPECT_EQ(facts.devices[1].major, 9);
  EXPECT_EQ(facts.devices[1].minor, 0);
  EXPECT_EQ(facts.no_devices, "");
  ASSERT_EQ(facts.libraries.size(), 3);
  EXPECT_EQ(facts.libraries[0].name, "cuBLASLt");
  EXPECT_EQ(facts.libraries[0].version, "13.1.0");
  EXPECT_EQ(facts.libraries[0].path, test::known_path("fake_cuda") + "/lib64/libcublasLt.so.13");
  EXPECT_EQ(facts.libraries[2].version, "2.28.9");
}

TEST(CudaFacts, a_library_without_what_is_asked_for_is_said_to_be_so) {
  const CudaFacts facts = find_cuda(kFake);
  EXPECT_EQ(facts.libraries[1].name, "cuDNN");
  EXPECT_EQ(facts.libraries[1].version, "");
  EXPECT_THAT(facts.libraries[1].missing, HasSubstr("libcudnn.so.9 has no cudnnGetVersion"));
}

TEST(CudaFacts, a_driver_that_fails_says_why) {
  const test::Environment set{{"FAKE_CUDA_ERROR", "100"}};
  const CudaFacts facts = find_cuda(kFake);
  EXPECT_EQ(facts.driver.version, "12.8");
  EXPECT_TRUE(facts.devices.empty());
  EXPECT_EQ(facts.no_devices, "cuInit: no CUDA-capable device is detected (100)");
}

TEST(CudaFacts, a_machine_without_anything_has_reasons) {
  const CudaFacts facts = find_cuda({.folders = {"/nonexistent"}, .in_system = false});
  EXPECT_EQ(facts.driver.missing, "no libcuda.so.1 in /nonexistent, no other folder");
  EXPECT_EQ(facts.no_devices, "there is no driver");
  for (const LibraryFacts& library : facts.libraries) {
    EXPECT_EQ(library.version, "");
    EXPECT_THAT(library.missing, HasSubstr("/nonexistent"));
  }
}

}  // namespace
}  // namespace nought::cuda::facts_test

// Libraries are found where they are said to be, and what is missing is a sentence.
#include "nought/cuda/library.h"

#include <cstdlib>

#include "support/environment.h"
#include "support/known_paths.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::cuda::library_test {
namespace {

using test::message_of;
using ::testing::ElementsAre;

const LibrarySearch kFake{.folders = {test::known_path("fake_cuda")}, .in_system = false};

TEST(CudaLibrary, is_found_in_an_installation_and_gives_its_functions) {
  const Library nccl({"libnccl.so.9", "libnccl.so.2"}, kFake);
  EXPECT_EQ(nccl.path(), test::known_path("fake_cuda") + "/nccl/lib/libnccl.so.2") << "as Python's packages lie";
  int version = 0;
  EXPECT_EQ(nccl.function<int(int*)>("ncclGetVersion")(&version), 0);
  EXPECT_EQ(version, 22809);
  EXPECT_EQ(message_of<IoError>([&] { nccl.function<int()>("ncclNothing"); }),
            test::known_path("fake_cuda") + "/nccl/lib/libnccl.so.2 has no ncclNothing");
}

TEST(CudaLibrary, one_that_is_missing_says_what_was_looked_for) {
  EXPECT_EQ(message_of<IoError>([] {
              Library({"libnothing.so.1", "libnothing.so.2"}, kFake);
            }),
            "no libnothing.so.1 or libnothing.so.2 in " + test::known_path("fake_cuda") + ", no other folder");
  EXPECT_EQ(message_of<IoError>([] { Library({"libnothing.so.1"}, {}); }),
            "no libnothing.so.1 in the linker's folders and /usr/local/cuda");
}

TEST(CudaLibrary, the_folders_come_from_the_environment) {
  const test::Environment set{{"NOUGHT_CUDA_PATH", "/a:/b/c:"}};
  EXPECT_THAT(LibrarySearch::of_environment().folders, ElementsAre("/a", "/b/c"));
  EXPECT_TRUE(LibrarySearch::of_environment().in_system);
}

}  // namespace
}  // namespace nought::cuda::library_test

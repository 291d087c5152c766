#include "nought/tensor/address_space.h"

#include "support/size.h"
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/tensor/memory.h"

namespace nought::address_space_test {
namespace {

NOUGHT_FILE_SIZE(medium);

/// In a process of its own, whose limit this is.
void limit_address_space(rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(77);
}

TEST(AddressSpaceDeathTest, a_limit_is_named) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve terabytes";
#endif
  EXPECT_EXIT(
      {
        limit_address_space(rlim_t{1} << 40);
        fprintf(stderr, "<%s>", address_space_note().c_str());
        _exit(0);
      },
      testing::ExitedWithCode(0), "^< \\(ulimit -v limits this process to 1.00 TiB\\)>$");
}

TEST(AddressSpaceDeathTest, memory_that_it_refuses_says_so_in_one_line) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve terabytes";
#endif
  const auto refused = [](const std::shared_ptr<Memory>& memory) {
    limit_address_space(rlim_t{2} << 30);
    try {
      memory->allocate(int64_t{4} << 30, Category::parameters);
    } catch (const DeviceError& error) {
      fputs(error.what(), stderr);
      _exit(1);
    }
  };
  EXPECT_EXIT(refused(Memory::create()), testing::ExitedWithCode(1),
              "^out of memory: 4.00 GiB for parameters were refused by the system \\(ulimit -v limits this process to "
              "2.00 GiB\\); held on this rank:");
  EXPECT_EXIT(refused(Memory::create_virtual()), testing::ExitedWithCode(1),
              "^predicting memory reserves address space, and the system refuses another 4.00 GiB of it \\(ulimit -v "
              "limits this process to 2.00 GiB\\): raise the limit with `ulimit -v unlimited`$");
}

}  // namespace
}  // namespace nought::address_space_test

#include "nought/data/ordered_map.h"

#include <optional>
#include <stdexcept>
#include <string>

#include "support/message_of.h"
#include <gtest/gtest.h>

namespace nought::ordered_map_test {
namespace {

using test::message_of;

TEST(OrderedMap, uses_in_order_and_throws_the_first_failure_of_that_order) {
  for (const int threads : {1, 4}) {
    int made = 0;
    std::vector<int> used;
    const auto next = [&]() -> std::optional<int> {
      if (made == 100) throw std::runtime_error("next");
      return made++;
    };
    const auto map = [&](int broken) {
      made = 0, used.clear();
      return message_of<std::runtime_error>([&] {
        ordered_map(
            threads, next,
            [&](int i) {
              if (i == broken || i == broken + 1) throw std::runtime_error(std::to_string(i));
              return 2 * i;
            },
            [&](int i, int twice) {
              EXPECT_EQ(twice, 2 * i);
              used.push_back(i);
            });
      });
    };
    EXPECT_EQ(map(50), "50");
    EXPECT_EQ(used.size(), 50u);
    EXPECT_EQ(map(1000), "next");
    EXPECT_EQ(used.size(), 100u);
  }
}

}  // namespace
}  // namespace nought::ordered_map_test

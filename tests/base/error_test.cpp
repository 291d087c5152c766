// Checks cost nothing when they hold: what a message would say is put into words only for the message.
#include "nought/base/error.h"

#include <gtest/gtest.h>

namespace nought::error_test {
namespace {

struct Counting {
  int* told;
  std::string str() const { return ++*told, "a thing"; }
};

TEST(Require, puts_its_arguments_into_words_only_when_the_condition_fails) {
  int told = 0;
  const Counting thing{&told};
  require(true, "{} is wrong", thing);
  EXPECT_EQ(told, 0);
  try {
    require<ShapeError>(false, "{} is wrong, expected {}", thing, 3);
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "a thing is wrong, expected 3");
  }
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace nought::error_test

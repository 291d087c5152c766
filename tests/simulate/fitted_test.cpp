// Constants are few, complete and finite.
#include "nought/simulate/fitted.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::fitted_test {
namespace {

using testing::HasSubstr;

TEST(Fitted, a_generation_of_chips_has_at_most_15_numbers) {
  for (const auto& [name, set] : read_fitted(fitted_text(), "fitted.json")) EXPECT_LE(to_json(set).size(), 15) << name;
  EXPECT_EQ(fitted_constants().size(), 3);
}

TEST(Fitted, what_is_missing_unknown_or_nonsense_is_refused) {
  const auto error_of = [](const std::string& text) {
    return test::message_of<ConfigError>([&] { read_fitted(text, "mine.json"); });
  };
  EXPECT_THAT(error_of(R"({"a100": {"products": 0.7}})"), HasSubstr("mine.json: a100: knee is missing"));
  EXPECT_THAT(error_of(R"({"a100": {"product": 0.7}})"), HasSubstr("products"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
}

}  // namespace
}  // namespace nought::fitted_test

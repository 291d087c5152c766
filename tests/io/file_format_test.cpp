#include "nought/io/file_format.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/error.h"

namespace nought::file_format_test {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr FileFormat kFormat{"nought-thing", 3};

std::string refusal_of(const nlohmann::json& format) {
  return message_of<IoError>([&] { require_readable("some/file", format, kFormat); });
}

TEST(FileFormat, its_own_version_and_older_ones_are_read) {
  EXPECT_EQ(kFormat.str(), "nought-thing-3");
  for (const char* readable : {"nought-thing-1", "nought-thing-2", "nought-thing-3"})
    EXPECT_EQ(refusal_of(readable), "");
  for (const int64_t version : {1, 2, 3}) require_readable("some/file", version, kFormat);
}

TEST(FileFormat, a_newer_version_is_refused_with_what_is_read_and_what_to_do) {
  const std::string message =
      "some/file: its format is nought-thing-4, this program reads up to nought-thing-3: use the version of nought "
      "that wrote it, or a newer one";
  EXPECT_EQ(refusal_of("nought-thing-4"), message);
  EXPECT_EQ(message_of<IoError>([] { require_readable("some/file", 4, kFormat); }), message);
}

TEST(FileFormat, what_is_no_version_of_it_is_named_in_one_line) {
  for (const nlohmann::json& format :
       {nlohmann::json("nought-other-1"), nlohmann::json("nought-thing"), nlohmann::json("nought-thing-"),
        nlohmann::json("nought-thing-1a"), nlohmann::json("nought-thing1"), nlohmann::json("a\nb"), nlohmann::json(3),
        nlohmann::json(), nlohmann::json("nought-thing-99999999999999999999"), nlohmann::json({{"a", 1}}),
        nlohmann::json::parse(std::string(100'000, '[') + std::string(100'000, ']'))})
    EXPECT_THAT(refusal_of(format), AllOf(HasSubstr("some/file: its format is "),
                                          HasSubstr("expected \"nought-thing-3\""), Not(HasSubstr("\n"))))
        << format;
  for (const char* damaged : {"nought-thing-0", "nought-thing--1"})
    EXPECT_THAT(refusal_of(damaged), HasSubstr("versions begin with 1")) << damaged;
}

}  // namespace
}  // namespace nought::file_format_test

// The rates of a GPU are those of a name or of a file, and a file that says too little or nonsense is refused.
#include "nought/plan/gpu_rates.h"

#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought::gpu_rates_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string error_of(const std::string& name_or_file) {
  return test::message_of<ConfigError>([&] { gpu_rates(name_or_file); });
}

class GpuRatesFile : public testing::Test {
 protected:
  std::string write(const std::string& text) const { return folder_.write("mine.json", text).string(); }
  std::string error_with(const char* key, const Json& value) const {
    Json json = to_json(gpu_rates("h100"));
    json[key] = value;
    return error_of(write(json.dump()));
  }

 private:
  test::TempFolder folder_;
};

TEST(GpuRates, gpus_have_names_in_any_case_and_others_are_refused_with_what_there_is) {
  for (const char* name : {"a100", "h100", "h200", "4090"}) EXPECT_EQ(gpu_rates(name).name, name);
  EXPECT_EQ(gpu_rates("H200").name, "h200");
  EXPECT_THAT(error_of("h300"), AllOf(HasSubstr("--gpu h300: expected a100, h100, h200, 4090 or a JSON file"),
                                      HasSubstr("did you mean")));
}

TEST_F(GpuRatesFile, a_file_has_the_rates_of_any_gpu) {
  Json json = to_json(gpu_rates("h100"));
  json["memory"] = 2.1e12, json.erase("name");
  const GpuRates rates = gpu_rates(write(json.dump()));
  EXPECT_EQ(rates.memory, 2.1e12);
  EXPECT_EQ(rates.products, gpu_rates("h100").products);
  EXPECT_EQ(rates.name, "mine") << "that of the file";
}

TEST_F(GpuRatesFile, missing_rates_are_named_together_with_where_to_find_a_whole_file) {
  Json json = to_json(gpu_rates("h100"));
  json.erase("memory"), json.erase("bus");
  EXPECT_THAT(error_of(write(json.dump())),
              AllOf(HasSubstr("mine.json: no rate above 0 for memory, bus"), HasSubstr("--gpu h100 --json")));
  EXPECT_THAT(error_with("launch", 0), HasSubstr("no rate above 0 for launch"));
}

TEST_F(GpuRatesFile, what_is_no_rate_is_refused_by_name) {
  EXPECT_THAT(error_with("memory", -1), HasSubstr("memory must be a finite number above 0, got -1"));
  EXPECT_THAT(error_with("peak", "989e12"), HasSubstr("peak: expected a number"));
  EXPECT_THAT(error_with("memery", 1), HasSubstr("memery: unknown key (did you mean \"memory\"?)"));
  for (const char* value : {"NaN", "Infinity", "-Infinity", "1e999"}) {
    Json json = to_json(gpu_rates("h100"));
    json.erase("bus");
    std::string text = json.dump();
    text.back() = ',';
    EXPECT_THAT(error_of(write(text + "\"bus\": " + value + "}")), HasSubstr("mine.json")) << value;
  }
}

}  // namespace
}  // namespace nought::gpu_rates_test

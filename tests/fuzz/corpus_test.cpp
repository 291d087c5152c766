// Every input that fuzzing found worth keeping is accepted or refused with one line, in the ordinary build too.
#include <algorithm>
#include <filesystem>

#include "support/known_paths.h"
#include "support/temp_folder.h"
#include "targets.h"
#include <gtest/gtest.h>

namespace nought::fuzz::corpus_test {
namespace {

namespace fs = std::filesystem;

class Corpus : public ::testing::TestWithParam<Target> {};

TEST_P(Corpus, is_accepted_or_refused_with_one_line) {
  int inputs = 0;
  for (const auto& file : fs::directory_iterator(fs::path(test::known_path("corpus")) / GetParam().name)) {
    SCOPED_TRACE(file.path().string());
    const std::string bytes = test::read_bytes(file.path());
    GetParam().run(std::as_bytes(std::span(bytes)));
    ++inputs;
  }
  EXPECT_GT(inputs, 10);
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, ::testing::ValuesIn(kTargets),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nought::fuzz::corpus_test

// nought verify, the program: what it says of a true receipt and of one that was changed, and of bad input. What is
// found at all is in forged_receipts_test.cpp.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "prove/receipt_copy.h"
#include "support/known_paths.h"
#include "support/run_file.h"
#include "support/run_program.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/receipt.h"

namespace nought::verify_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::TempFolder;
using testing::HasSubstr;

Ended nought(const std::string& arguments) { return test::run_program(test::known_path("nought") + " " + arguments); }

NOUGHT_FILE_SIZE(medium);

/// A run of 6 steps on 2 of 4 virtual ranks, with a line for each step and a checkpoint after every second one.
class Verify : public testing::Test {
 public:
  static void SetUpTestSuite() {
    folder = std::make_unique<TempFolder>();
    const std::string run = "train " + test::write_small_run(*folder, 6, 2).string() +
                            " --ranks 2 --set training.virtual_ranks=4 --set training.gradient_accumulation_steps=2"
                            " --set training.per_device_train_batch_size=1";
    ASSERT_EQ(nought(run + " --set 'training.receipt={\"every\": 1}'").exit_code, 0);
    ASSERT_EQ(nought(run + " --set training.seed=7 --set training.output_dir=" + at("other")).exit_code, 0);
  }
  static void TearDownTestSuite() { folder.reset(); }
  static std::string at(const std::string& name) { return (*folder / name).string(); }

  static std::unique_ptr<TempFolder> folder;
};
std::unique_ptr<TempFolder> Verify::folder;

TEST_F(Verify, a_true_receipt_agrees_to_the_bit_on_the_ranks_of_the_run_and_on_others) {
  for (const int ranks : {2, 4}) {
    const Ended ended = nought(fmt::format("verify {} --steps 1 --ranks {}", at("out"), ranks));
    EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("receipt   7 lines up to step 6"));
    EXPECT_THAT(ended.out, HasSubstr("links     3 checkpoints and the exported weights hold"));
    EXPECT_THAT(ended.out, HasSubstr("exported  the weights are those of its line"));
    EXPECT_THAT(ended.out, HasSubstr(fmt::format("on {} ranks: the same bits", ranks)));
    EXPECT_THAT(ended.out, HasSubstr("result    the run went as its receipt says"));
  }
}

TEST_F(Verify, info_shows_the_receipt_of_a_checkpoint_and_of_exported_weights) {
  const std::string last = Receipt(at("out")).last();
  for (const std::string& model : {at("out"), at("out/checkpoint-6")})
    EXPECT_THAT(nought("info " + model).out, HasSubstr("the line with the hash " + last)) << model;
}

TEST_F(Verify, bad_input_is_refused_in_one_line) {
  const auto expect = [](const std::string& arguments, const std::string& text) {
    const Ended ended = nought("verify " + arguments);
    EXPECT_NE(ended.exit_code, 0) << arguments;
    EXPECT_EQ(ended.error_lines(), 1) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(text));
  };
  expect(at("other"), "there is no receipt: training.receipt was not set in this run");
  expect(at("nothing"), "there is no receipt");
  expect(at("out") + " --steps 0", "--steps must be at least 1");
  expect(at("out") + " --ranks 3", "3 ranks cannot make the run of ");
  const TempFolder mixed;
  fs::copy(at("other"), mixed.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  fs::copy_file(at("out/receipt.jsonl"), mixed / "receipt.jsonl");
  expect(mixed.path().string(), "checkpoint-2 does not belong to this receipt");
  // Without its checkpoints, and without its beginning, a run can not be made again.
  fs::remove_all(mixed.path());
  fs::create_directories(mixed.path());
  fs::copy_file(at("out/run_record.json"), mixed / "run_record.json");
  const Receipt receipt(at("out"));
  ReceiptWriter(mixed.path(), "elsewhere").add(OrderedJson(receipt.lines().front().json));
  expect(mixed.path().string(), "no step can be made again");
}

TEST_F(Verify, what_was_changed_is_said_and_is_the_exit_code) {
  const auto finding = [](const fs::path& run) {
    const Ended ended = nought("verify --steps 100 " + run.string());
    EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
    return ended.out;
  };
  const test::ReceiptCopy copy(at("out"));
  std::vector<OrderedJson> lines = copy.lines();
  lines[1]["loss"] = 1.5;
  copy.chain(lines), copy.forge_links();
  EXPECT_THAT(finding(copy.path()), HasSubstr("result    differs: step 1: loss is "));

  Json run = Json::parse(test::read_bytes(at("run.json")));
  run["training"]["learning_rate"] = 2e-3;
  folder->write("run.json", run.dump());
  EXPECT_THAT(finding(at("out")), HasSubstr("learning_rate is 0.002, the receipt says 0.001"));
  run["training"]["learning_rate"] = 1e-3;
  folder->write("run.json", run.dump());
}

}  // namespace
}  // namespace nought::verify_test

// A receipt is a chain: a changed line is found, what a kill left of one goes, and checkpoints and exports belong to
// it.
#include "nought/checkpoint/receipt.h"

#include <filesystem>
#include <string>
#include <vector>

#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/text.h"
#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/checkpoint/export_record.h"
#include "nought/checkpoint/receipt_check.h"
#include "nought/io/sha256.h"
#include "nought/plan/predict.h"
#include "nought/train/run_receipt.h"

namespace nought::receipt_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

OrderedJson step_line(int64_t step) {
  return {{"kind", "step"}, {"step", step}, {"loss", 1.0 / static_cast<double>(step)}, {"weights", "w"}};
}

std::string written(const TempFolder& folder, int64_t steps) {
  ReceiptWriter writer(folder.path(), "");
  writer.add({{"format", kReceiptFormat.str()}, {"kind", "start"}, {"step", 0}, {"weights", "w"}});
  for (int64_t step = 1; step <= steps; ++step) writer.add(step_line(step));
  return writer.last();
}

TEST(Receipt, is_a_chain_whose_last_hash_stands_for_all_of_it) {
  const TempFolder folder, same, other;
  const std::string last = written(folder, 3);
  EXPECT_EQ(written(same, 3), last);
  EXPECT_NE(written(other, 4), last);
  const Receipt receipt(folder.path());
  EXPECT_EQ(receipt.last(), last);
  EXPECT_EQ(receipt.lines().size(), 4U);
  EXPECT_EQ(receipt.find(last)->step(), 3);
  EXPECT_EQ(receipt.find("0"), nullptr);
  EXPECT_EQ(receipt.lines()[1].json.at("previous"), receipt.lines()[0].hash);
}

TEST(Receipt, every_changed_byte_of_every_line_is_found) {
  const TempFolder folder;
  const std::string last = written(folder, 2);
  const std::string text = test::read_bytes(folder / "receipt.jsonl");
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    folder.write("receipt.jsonl", changed);
    bool found = false;
    try {
      found = Receipt(folder.path()).find(last) == nullptr;  // what checkpoints and exports hold
    } catch (const Error&) {
      found = true;
    }
    EXPECT_TRUE(found) << "byte " << i;
  }
}

TEST(Receipt, goes_on_behind_what_a_kill_left_of_a_line) {
  const TempFolder folder;
  const std::string last = written(folder, 2);
  folder.write("receipt.jsonl", test::read_bytes(folder / "receipt.jsonl") + "{\"kind\": \"st");
  EXPECT_EQ(Receipt(folder.path()).last(), last);
  ReceiptWriter writer(folder.path(), "ignored");
  EXPECT_EQ(writer.last(), last);
  writer.add(step_line(3));
  EXPECT_EQ(Receipt(folder.path()).lines().back().json.at("previous"), last);
}

TEST(Receipt, what_is_none_is_refused_in_one_line) {
  const TempFolder folder;
  const auto refusal = [&] { return message_of<IoError>([&] { Receipt(folder.path()); }); };
  EXPECT_THAT(refusal(), HasSubstr("there is no receipt"));
  folder.write("receipt.jsonl", "");
  EXPECT_THAT(refusal(), HasSubstr("has no line"));
  folder.write("receipt.jsonl", "{}\n");
  EXPECT_THAT(refusal(), HasSubstr("line 1 is no line of a receipt"));
  folder.write("receipt.jsonl", R"({"format":"nought-receipt-9","kind":"start","step":0,"weights":"","previous":""})"
                                "\n");
  EXPECT_THAT(refusal(), HasSubstr("newer"));
}

RunPlan plan_with_receipt(const TempFolder& folder, int64_t steps) {
  RunPlan plan = test::plan_on_lines(folder, steps);
  plan.save_steps = 2;
  plan.receipt_every = 3;
  return plan;
}

std::vector<int64_t> steps_of(const Receipt& receipt) {
  std::vector<int64_t> steps;
  for (const ReceiptLine& line : receipt.lines()) steps.push_back(line.step());
  return steps;
}

NOUGHT_SIZE(medium);
TEST(RunReceipt, checkpoints_and_the_export_hold_the_hashes_of_their_lines_on_any_ranks) {
  std::vector<std::string> last;
  for (const int ranks : {1, 2, 4}) {
    const TempFolder folder;
    RunPlan plan = plan_with_receipt(folder, 5);
    plan.layout.micro_batch = 4 / ranks;
    plan.layout.zero_stage = ranks - 1;
    plan.layout.sharding.virtual_ranks = 4;
    plan.layout.accumulation = 1;
    test::run_plan(plan, {.ranks = ranks});
    const Receipt receipt(plan.output_dir);
    EXPECT_EQ(steps_of(receipt), (std::vector<int64_t>{0, 2, 3, 4, 5}));
    const ReceiptLinks links = check_links(receipt, plan.output_dir);
    EXPECT_TRUE(links.exported);
    EXPECT_EQ(links.checkpoints.size(), 3U);
    EXPECT_EQ(links.checkpoints.at(4)->step(), 4);
    EXPECT_EQ(read_export_record(plan.output_dir)->receipt, receipt.last());
    last.push_back(receipt.lines().front().json.at("weights"));
  }
  EXPECT_EQ(last[0], last[1]);
  EXPECT_EQ(last[0], last[2]);
}

NOUGHT_SIZE(medium);
TEST(RunReceipt, a_resume_goes_on_with_the_chain_and_has_the_same_lines) {
  const TempFolder folder;
  RunPlan plan = plan_with_receipt(folder, 4);
  const std::vector<double> losses = test::run_plan(plan).losses();
  const Receipt whole(plan.output_dir);
  std::filesystem::remove_all(folder / "out/checkpoint-4");
  EXPECT_EQ(test::run_plan(plan, {.mode = StartMode::resume}).losses_after(0),
            (std::vector<double>{losses[2], losses[3]}));
  const Receipt both(plan.output_dir);
  EXPECT_EQ(steps_of(both), (std::vector<int64_t>{0, 2, 3, 4, 2, 3, 4}));
  for (size_t i = 2; i < 4; ++i)
    EXPECT_EQ(describe_other_step(whole.lines()[i].json, both.lines()[i + 3].json, 0), "") << i;
  const ReceiptLine& start = both.lines()[4];
  EXPECT_EQ(start.kind(), "start");
  EXPECT_EQ(start.json.at("continues"), whole.lines()[1].hash) << "the line of the checkpoint";
  EXPECT_EQ(&start_before(both, both.lines()[6]), &start);
  EXPECT_EQ(describe_other_start(both.lines()[0].json, start.json, true),
            "the weights are not those that the receipt says");
  // A run elsewhere goes on from what the checkpoint holds.
  plan.resume_from = (folder / "out/checkpoint-2").string();
  plan.output_dir = (folder / "elsewhere").string();
  test::run_plan(plan, {.mode = StartMode::resume});
  EXPECT_EQ(Receipt(plan.output_dir).lines().front().json.at("previous"), whole.lines()[1].hash);
}

NOUGHT_SIZE(medium);
TEST(RunReceipt, a_plan_counts_the_memory_that_hashing_takes) {
  for (const int ranks : {1, 2}) {
    const TempFolder folder;
    RunPlan plan = plan_with_receipt(folder, 2);
    plan.layout.ranks = ranks, plan.layout.wire = Wire::threads;
    const auto predicted = [&] { return predict(model_config_of(plan), layout_of(plan)).memory.peak_total; };
    const int64_t with = predicted();
    EXPECT_EQ(test::run_plan(plan, {.ranks = ranks}).memory.front().peak_total, with);
    plan.receipt_every = 0;
    EXPECT_LT(predicted(), with) << "else this holds nothing";
  }
}

NOUGHT_SIZE(medium);
TEST(RunReceipt, without_one_nothing_is_written) {
  const TempFolder folder;
  RunPlan plan = plan_with_receipt(folder, 2);
  const std::vector<double> with = test::run_plan(plan).losses();
  plan.receipt_every = 0;
  plan.output_dir = (folder / "without").string();
  EXPECT_EQ(test::run_plan(plan).losses(), with);
  EXPECT_FALSE(has_receipt(plan.output_dir));
  EXPECT_EQ(read_export_record(plan.output_dir)->receipt, "");
  EXPECT_FALSE(read_checkpoint_info(checkpoint_path(plan.output_dir, 2)).about.contains(kReceiptKey));
}

TEST(ReceiptCheck, a_step_agrees_to_the_bit_or_within_the_margin) {
  const Json then{{"loss", 2.0}, {"grad_norm", 0.5}, {"samples", "s"}, {"weights", "w"}};
  const auto other = [&](const char* key, const Json& value, double margin) {
    Json now = then;
    now[key] = value;
    return describe_other_step(then, now, margin);
  };
  EXPECT_EQ(describe_other_step(then, then, 0), "");
  EXPECT_EQ(other("loss", 2.0000001, 0), "loss is 2.0000001, the receipt says 2.0");
  EXPECT_EQ(other("loss", 2.0000001, 1e-4), "");
  EXPECT_EQ(other("loss", 2.1, 1e-4), "loss is 2.1, the receipt says 2.0");
  EXPECT_EQ(other("loss", nullptr, 1e-4), "loss is null, the receipt says 2.0");
  EXPECT_EQ(other("samples", "t", 1e-4), "other samples were read");
  EXPECT_EQ(other("weights", "v", 0), "the weights are others");
  EXPECT_EQ(other("weights", "v", 1e-4), "");
}

TEST(ReceiptCheck, a_start_differs_in_what_is_computed_and_not_in_where_it_is_written) {
  const Json then{{"config", {{"learning_rate", "0.1"}, {"output_dir", "out"}, {"world_size", "1"}}},
                  {"run", {{"seed", 1}}},
                  {"files", {{"a.txt", "1"}}},
                  {"weights", "w"}};
  const auto other = [&](const char* section, const char* key, const Json& value, bool same_ranks) {
    Json now = then;
    now[section][key] = value;
    return describe_other_start(then, now, same_ranks);
  };
  EXPECT_EQ(other("config", "output_dir", "elsewhere", true), "");
  EXPECT_EQ(other("config", "learning_rate", "0.2", false), "learning_rate is 0.2, the receipt says 0.1");
  EXPECT_EQ(other("config", "world_size", "2", true), "world_size is 2, the receipt says 1");
  EXPECT_EQ(other("config", "world_size", "2", false), "");
  EXPECT_EQ(other("run", "seed", 2, false), "seed is 2, the receipt says 1");
  EXPECT_EQ(other("files", "a.txt", "2", false), "a.txt is not the file that was read");
}

}  // namespace
}  // namespace nought::receipt_test

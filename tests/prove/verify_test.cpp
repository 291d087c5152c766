// nought verify: a receipt that is true agrees with its replays on any ranks, and one that was changed is found,
// whoever changed it.
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/known_paths.h"
#include "support/message_of.h"
#include "support/run_file.h"
#include "support/run_program.h"
#include "support/size.h"
#include "support/sweep.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/text.h"
#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/checkpoint/receipt.h"
#include "nought/checkpoint/receipt_check.h"
#include "nought/io/sha256.h"

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

TEST_F(Verify, a_true_receipt_agrees_to_the_bit_on_1_2_and_4_ranks) {
  for (const int ranks : {1, 2, 4}) {
    const Ended ended = nought(fmt::format("verify {} --ranks {} --steps {}", at("out"), ranks, ranks == 2 ? 100 : 2));
    EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("receipt   7 lines up to step 6"));
    EXPECT_THAT(ended.out, HasSubstr("links     3 checkpoints and the exported weights hold"));
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

// --- changes ---

/// A copy of the run, to be changed.
class Copy {
 public:
  Copy() {
    fs::copy(Verify::at("out"), folder_.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }

  fs::path path() const { return folder_.path(); }
  std::vector<OrderedJson> lines() const {
    std::vector<OrderedJson> lines;
    for (const std::string& line : split(test::read_bytes(folder_ / "receipt.jsonl"), '\n'))
      if (!line.empty()) lines.push_back(OrderedJson::parse(line));
    return lines;
  }
  /// Writes the lines as they are: the chain breaks.
  void write(const std::vector<OrderedJson>& lines) const {
    std::string text;
    for (const OrderedJson& line : lines) text += line.dump() + "\n";
    folder_.write("receipt.jsonl", text);
  }
  /// Writes a chain of the lines.
  void chain(std::vector<OrderedJson> lines) const {
    std::string last;
    for (OrderedJson& line : lines) line["previous"] = last, last = sha256_of(line.dump());
    write(lines);
  }
  /// Gives checkpoints and the export the hashes of the chain.
  void forge_links() const {
    const Receipt receipt(path());
    for (const fs::path& checkpoint : list_checkpoints(path()))
      for (const ReceiptLine& line : receipt.lines())
        if (line.step() == checkpoint_step(checkpoint)) forge(checkpoint, line.hash);
    Json state = Json::parse(test::read_bytes(folder_ / "trainer_state.json"));
    state["receipt"] = receipt.last();
    folder_.write("trainer_state.json", state.dump());
  }
  static void forge(const fs::path& checkpoint, const std::string& hash) {
    const Json manifest = read_manifest(checkpoint);
    CheckpointInfo info = info_in(manifest, checkpoint);
    info.about[kReceiptKey] = hash;
    write_manifest(info, manifest.at("blocks"), checkpoint);
  }
  /// What `nought verify` finds without replays.
  std::string found_at_once() const {
    return test::message_of<IoError>([&] { check_links(Receipt(path()), path()); });
  }

 private:
  TempFolder folder_;
};

/// Changes of one line that somebody might make.
struct Change {
  size_t line;
  std::string member;
};

void change(OrderedJson& value) {
  if (value.is_number_integer())
    value = value.get<int64_t>() + 1;
  else if (value.is_number())
    value = value.get<double>() * 1.001;
  else if (value.is_string())
    value = (value == "0.5" ? "0.25" : "0.5");
  else
    change(*value.begin());
}

/// Changes of what a line says of its run or step. Those of steps alone: only replays find them if all else is forged.
std::vector<Change> changes() {
  std::vector<Change> all;
  for (size_t line = 1; line <= 6; ++line)
    for (const char* member : {"loss", "grad_norm", "samples", "weights"}) all.push_back({line, member});
  for (const char* member : {"/config/learning_rate", "/run/seed", "/run/data", "/files", "/weights"})
    all.push_back({0, member});
  return all;
}

std::vector<OrderedJson> changed(const Copy& copy, const Change& each) {
  std::vector<OrderedJson> lines = copy.lines();
  OrderedJson& line = lines.at(each.line);
  change(each.member.starts_with('/') ? line.at(OrderedJson::json_pointer(each.member)) : line.at(each.member));
  return lines;
}

TEST_F(Verify, a_changed_line_breaks_the_chain_and_a_new_chain_leaves_checkpoints_behind) {
  int found = 0;
  for (const Change& each : changes()) {
    const Copy copy;
    const std::vector<OrderedJson> lines = changed(copy, each);
    copy.write(lines);
    EXPECT_NE(copy.found_at_once(), "") << each.line << " " << each.member;
    copy.chain(lines);
    EXPECT_THAT(copy.found_at_once(), HasSubstr("belong to this receipt")) << each.line << " " << each.member;
    found += 2;
  }
  const Copy copy;
  for (size_t line = 1; line < 6; ++line, ++found) {  // another order
    std::vector<OrderedJson> lines = copy.lines();
    std::swap(lines[line], lines[line + 1]);
    copy.write(lines);
    EXPECT_NE(copy.found_at_once(), "") << line;
  }
  for (size_t line = 0; line < 6; ++line, ++found) {  // one that is missing
    std::vector<OrderedJson> lines = copy.lines();
    lines.erase(lines.begin() + static_cast<int64_t>(line));
    copy.write(lines);
    EXPECT_NE(copy.found_at_once(), "") << line;
  }
  EXPECT_EQ(found, 69);
}

TEST_F(Verify, what_is_forged_in_all_places_is_found_by_replays) {
  const std::vector<Change> all = changes();
  for (size_t i = 0; i < all.size(); ++i) {
    if (!test::samples(static_cast<int64_t>(i), 10)) continue;
    const Copy copy;
    copy.chain(changed(copy, all[i]));
    copy.forge_links();
    EXPECT_EQ(copy.found_at_once(), "");
    const Ended ended = nought("verify --steps 100 " + copy.path().string());
    EXPECT_EQ(ended.exit_code, 1) << all[i].line << " " << all[i].member << ": " << ended.out << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("result    differs: "));
  }
}

TEST_F(Verify, other_weights_in_a_checkpoint_and_other_files_are_found) {
  const auto finding = [](const fs::path& run) {
    const Ended ended = nought("verify --steps 100 " + run.string());
    EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
    return ended.out;
  };
  const Copy copy;
  const std::string hash = check_links(Receipt(copy.path()), copy.path()).checkpoints.at(4)->hash;
  fs::remove_all(copy.path() / "checkpoint-4");
  fs::copy(at("other/checkpoint-4"), copy.path() / "checkpoint-4", fs::copy_options::recursive);
  Copy::forge(copy.path() / "checkpoint-4", hash);
  EXPECT_THAT(finding(copy.path()), HasSubstr("from step 4: the weights are not those that the receipt says"));

  const auto with = [&](const std::string& name, const std::function<std::string(std::string)>& edit) {
    const std::string before = test::read_bytes(at(name));
    folder->write(name, edit(before));
    const std::string found = finding(at("out"));
    folder->write(name, before);
    return found;
  };
  EXPECT_THAT(with("text.txt", [](std::string text) { return text[40] ^= 1, text; }), HasSubstr("data is "));
  EXPECT_THAT(with("run.json",
                   [](std::string text) {
                     Json run = Json::parse(text);
                     run["training"]["learning_rate"] = 2e-3;
                     return run.dump();
                   }),
              HasSubstr("learning_rate is 0.002, the receipt says 0.001"));
}

}  // namespace
}  // namespace nought::verify_test

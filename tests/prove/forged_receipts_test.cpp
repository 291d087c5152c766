// Receipts that somebody has changed are found by replays in this process, whatever else was changed to hide it; true
// ones agree on any ranks.
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "prove/receipt_copy.h"
#include "support/message_of.h"
#include "support/run_file.h"
#include "support/size.h"
#include "support/sweep.h"
#include "support/temp_folder.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/receipt_replay.h"
#include "nought/config/run_config.h"
#include "nought/plan/ready_run.h"
#include "nought/weights/receipt_export.h"

namespace nought::forged_receipts_test {
namespace {

namespace fs = std::filesystem;
using test::ReceiptCopy;
using test::TempFolder;
using testing::HasSubstr;

constexpr int kRanks = 2, kSteps = 6;
constexpr int64_t kBatch = 4;

/// Makes the run of a RUN.json, with the batch of all of them.
void train(Json run, int ranks, StartMode mode) {
  run["training"]["per_device_train_batch_size"] = 1;
  run["training"]["gradient_accumulation_steps"] = kBatch / ranks;
  RunPlan plan = ready_run(resolve(make_run_config(run, "RUN.json", {}), ranks), mode).plan;
  plan.layout.wire = Wire::threads;
  test::run_plan(plan, {.ranks = ranks, .mode = mode});
}

/// The receipt of a replay on so many ranks of the run that lies in a folder.
Receipt replayed(Json run, const fs::path& from, int64_t base, int ranks) {
  const TempFolder place;
  Json& training = run["training"];
  training["output_dir"] = place.path().string();
  training["save_steps"] = kSteps;
  if (base > 0) training["resume_from_checkpoint"] = checkpoint_path(from, base).string();
  train(run, ranks, base > 0 ? StartMode::resume : StartMode::fresh);
  return Receipt(place.path());
}

/// What is found of all steps of the run in a folder; "": it went as its receipt says.
std::string found_in(const fs::path& folder, const Json& run, int ranks) {
  try {
    const Receipt receipt(folder);
    const ReceiptLinks links = check_links(receipt, folder);
    if (const ExportComparison exported = compare_export(receipt, folder); !exported.note.empty()) return exported.note;
    for (const auto& [base, lines] : choose_lines(receipt, links, 100, /*seed=*/1))
      if (std::string other = describe_replay(lines, base, replayed(run, folder, base, ranks), ranks); !other.empty())
        return other;
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

NOUGHT_FILE_SIZE(medium);

class ForgedReceipts : public testing::Test {
 public:
  static void SetUpTestSuite() {
    folder = std::make_unique<TempFolder>();
    run = Json::parse(test::read_bytes(test::write_small_run(*folder, kSteps, 2)));
    run["training"]["receipt"] = {{"every", 1}};
    train(named("plain"), kRanks, StartMode::fresh);
    run["training"]["virtual_ranks"] = kBatch;
    train(named("out"), kRanks, StartMode::fresh);
    Json other = named("other");
    other["training"]["seed"] = 7;
    train(other, kRanks, StartMode::fresh);
  }
  static void TearDownTestSuite() { folder.reset(); }
  static fs::path at(const std::string& name) { return *folder / name; }
  /// The run, with another folder.
  static Json named(const std::string& name) {
    Json named = run;
    named["training"]["output_dir"] = at(name).string();
    return named;
  }

  static std::unique_ptr<TempFolder> folder;
  static Json run;
};
std::unique_ptr<TempFolder> ForgedReceipts::folder;
Json ForgedReceipts::run;

TEST_F(ForgedReceipts, true_ones_agree_to_the_bit_on_1_2_and_4_ranks) {
  for (const int ranks : {1, 2, 4}) EXPECT_EQ(found_in(at("out"), run, ranks), "") << ranks;
}

// --- other ranks without virtual ones ---

TEST_F(ForgedReceipts, without_virtual_ranks_others_agree_within_what_is_said) {
  Json plain = run;
  plain["training"].erase("virtual_ranks");
  for (const int ranks : {1, 2, 4}) EXPECT_EQ(found_in(at("plain"), plain, ranks), "") << ranks;
  const Json start = Receipt(at("plain")).lines().front().json;
  EXPECT_EQ(margin_on(start, kRanks, 2), 0);
  EXPECT_EQ(margin_on(start, kRanks, 4), 1e-4);
  EXPECT_EQ(describe_margin(1e-4, 2, 1),
            "on 1 rank, in another order of additions than on 2: losses and norms are within 0.0001 of the receipt's, "
            "and weights are not compared");
  EXPECT_EQ(describe_margin(0, 2, 4), "on 4 ranks: the same bits");
  for (const double factor : {1 + 1e-6, 1 + 1e-3}) {
    const ReceiptCopy copy(at("plain"));
    std::vector<OrderedJson> lines = copy.lines();
    lines[3]["loss"] = lines[3]["loss"].get<double>() * factor;
    copy.chain(lines), copy.forge_links();
    EXPECT_THAT(found_in(copy.path(), plain, 2), HasSubstr("step 3: loss is "));
    EXPECT_EQ(found_in(copy.path(), plain, 4) == "", factor < 1 + 1e-4) << "what is smaller is rounding";
  }
}

TEST_F(ForgedReceipts, what_other_ranks_round_otherwise_is_not_verified_on_them) {
  Json quantized = named("quantized");
  quantized["training"].erase("virtual_ranks");
  quantized["deepspeed"] = {{"zero_optimization", {{"stage", 3}, {"zero_quantized_gradients", true}}}};
  train(quantized, kRanks, StartMode::fresh);
  EXPECT_EQ(found_in(at("quantized"), quantized, kRanks), "");
  EXPECT_THAT(found_in(at("quantized"), quantized, 4),
              HasSubstr("on 4 ranks this run has another result than on 2 ranks, because of zero_quantized_gradients"));
}

// --- changes ---

/// How much else somebody changes to hide a change: nothing; the chain; and what holds hashes of it.
enum class Hidden : uint8_t { not_at_all, by_the_chain, by_all };

class Forger {
 public:
  Forger(uint64_t seed, const ReceiptCopy& copy, Json run)
      : random_(seed),
        copy_(copy),
        run_(std::move(run)),
        kind_(seed % kKinds.size()),
        hidden_(static_cast<Hidden>(below(3))) {}
  ~Forger() {
    if (!text_.empty()) ForgedReceipts::folder->write("text.txt", text_);
  }
  Forger(const Forger&) = delete;
  Forger& operator=(const Forger&) = delete;

  static constexpr std::array<const char*, 7> kKinds{"step",    "start", "order", "missing line",
                                                     "weights", "data",  "config"};
  const char* kind() const { return kKinds[kind_]; }
  int ranks() { return std::array{1, 2, 2, 4}[below(4)]; }
  /// What was changed; the run of replays then is that of run().
  std::string change() {
    const std::array steps{&Forger::change_step,    &Forger::change_start, &Forger::change_order, &Forger::leave_out,
                           &Forger::change_weights, &Forger::change_data,  &Forger::change_config};
    const std::string what = (this->*steps[kind_])();
    return fmt::format("{}, hidden {}", what, static_cast<int>(hidden_));
  }
  const Json& run() const { return run_; }

 private:
  size_t below(size_t limit) { return static_cast<size_t>(random_() % limit); }
  template <size_t n>
  std::string of(const std::array<const char*, n>& all) {
    return all[below(n)];
  }

  void write(std::vector<OrderedJson> lines) const {
    if (hidden_ == Hidden::not_at_all) return copy_.write(lines);
    copy_.chain(std::move(lines));
    if (hidden_ == Hidden::by_all) copy_.forge_links();
  }
  void change_value(OrderedJson& value) {
    if (value.is_object()) return change_value(*value.begin());
    if (value.is_number_integer()) {
      value = value.get<int64_t>() + 1;
    } else if (value.is_number()) {
      value = std::nextafter(value.get<double>() * (1 + std::pow(0.1, static_cast<double>(1 + below(14)))), 1e9);
    } else {
      std::string text = value;
      char& digit = text[below(text.size())];
      digit = digit == '1' ? '2' : '1';
      value = text;
    }
  }
  std::string change_member(size_t line, const std::string& pointer) {
    std::vector<OrderedJson> lines = copy_.lines();
    OrderedJson& value = lines[line].at(OrderedJson::json_pointer(pointer));
    const std::string before = value.dump();
    change_value(value);
    std::string what = fmt::format("{} of line {} was {}, is {}", pointer, line + 1, before, value.dump());
    write(std::move(lines));
    return what;
  }

  std::string change_step() {
    return change_member(1 + below(kSteps), of(std::array{"/loss", "/grad_norm", "/samples", "/weights"}));
  }
  std::string change_start() {
    return change_member(0, of(std::array{"/config/learning_rate", "/run/seed", "/run/data", "/files", "/weights",
                                          "/other_ranks", "/config/optimizer"}));
  }
  std::string change_order() {
    std::vector<OrderedJson> lines = copy_.lines();
    const size_t first = 1 + below(kSteps - 1), second = first + 1 + below(kSteps - first);
    std::swap(lines[first], lines[second]);
    write(std::move(lines));
    return fmt::format("lines {} and {} change places", first + 1, second + 1);
  }
  std::string leave_out() {
    std::vector<OrderedJson> lines = copy_.lines();
    const size_t line = below(lines.size());
    lines.erase(lines.begin() + static_cast<int64_t>(line));
    if (line == 0) lines[0]["format"] = kReceiptFormat.str();
    write(std::move(lines));
    return fmt::format("no line {}", line + 1);
  }
  std::string change_weights() {
    const int64_t step = std::array{2, 4}[below(2)];
    const fs::path checkpoint = checkpoint_path(copy_.path(), step);
    if (hidden_ == Hidden::not_at_all) return flip_bit_in(copy_.path() / "model.safetensors");
    if (hidden_ == Hidden::by_the_chain)
      return flip_bit_in(checkpoint / read_manifest(checkpoint).at("blocks").at(0).at("file").get<std::string>());
    const Receipt receipt(copy_.path());
    fs::remove_all(checkpoint);
    fs::copy(checkpoint_path(ForgedReceipts::at("other"), step), checkpoint, fs::copy_options::recursive);
    ReceiptCopy::forge_link(checkpoint, receipt.lines()[static_cast<size_t>(step)].hash);
    return fmt::format("checkpoint-{} of another run", step);
  }
  /// The bit is that of a value: it lies behind the header, which is shorter than all else.
  std::string flip_bit_in(const fs::path& file) {
    const auto size = static_cast<size_t>(fs::file_size(file));
    const size_t at = size / 2 + below(size / 2), bit = below(8);
    test::flip_bit(file, static_cast<int64_t>(at), static_cast<int>(bit));
    return fmt::format("bit {} of byte {} of {}", bit, at, file.filename().string());
  }
  std::string change_data() {
    text_ = test::read_bytes(ForgedReceipts::at("text.txt"));
    std::string text = text_;
    const size_t at = below(text.size());
    if (hidden_ == Hidden::by_all) {
      for (char& each : text) each = each == 'l' ? 'k' : each;
    } else {
      text[at] = static_cast<char>(text[at] ^ 1);
    }
    ForgedReceipts::folder->write("text.txt", text);
    forge_start();
    return fmt::format("byte {} of the text, or all of one letter", at);
  }
  std::string change_config() {
    const std::string key = of(std::array{"learning_rate", "seed", "weight_decay", "adam_beta1", "max_grad_norm"});
    const std::map<std::string, Json> values{
        {"learning_rate", 1.001e-3}, {"seed", 43}, {"weight_decay", 0.3}, {"adam_beta1", 0.8}, {"max_grad_norm", 0.1}};
    run_["training"][key] = values.at(key);
    forge_start();
    return fmt::format("{} is {}", key, values.at(key).dump());
  }
  /// The start line becomes that of a run of what was changed.
  void forge_start() {
    if (hidden_ != Hidden::by_all) return;
    std::vector<OrderedJson> lines = copy_.lines();
    lines[0] = OrderedJson(replayed(run_, copy_.path(), 0, kRanks).lines().front().json);
    write(std::move(lines));
  }

  std::mt19937_64 random_;
  const ReceiptCopy& copy_;
  Json run_;
  size_t kind_;
  Hidden hidden_;
  std::string text_;  // as it was; "": it still is
};

TEST_F(ForgedReceipts, all_of_a_hundred_that_were_tampered_with_are_found) {
  std::map<std::string, int> kinds;
  int count = 0, found = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    if (!test::samples(static_cast<int64_t>(seed), 10)) continue;
    const ReceiptCopy copy(at("out"));
    Forger forger(seed, copy, run);
    const std::string what = forger.change();
    const std::string difference = found_in(copy.path(), forger.run(), forger.ranks());
    EXPECT_NE(difference, "") << "seed " << seed << ": " << what;
    if (test::runs_everything()) fmt::print("seed {}: {}: {}\n", seed, what, difference);
    ++kinds[forger.kind()], ++count, found += difference.empty() ? 0 : 1;
  }
  EXPECT_EQ(kinds.size(), Forger::kKinds.size());
  fmt::print("{} of {} receipts that were tampered with are found\n", found, count);
}

}  // namespace
}  // namespace nought::forged_receipts_test

// GRPO's losses, advantages and gradients of TRL, of tests/golden/align/grpo, on every layout.
#include <algorithm>
#include <cmath>

#include "support/golden.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/data/answer_batch.h"
#include "nought/engine/model_schedule.h"
#include "nought/engine/sequence_pass.h"
#include "nought/io/safetensors_writer.h"
#include "nought/train/probe_policy.h"
#include "nought/weights/model_source.h"

namespace nought::policy_golden_test {
namespace {

using test::MeshLayout;
using test::TrainingRank;

FoundModel policy() { return {.folder = test::golden_folder("align/policy")}; }
std::string golden() { return test::golden_folder("align/grpo") + "/golden.safetensors"; }

AlignmentPlan plan_of(const std::string& kind) {
  AlignmentPlan plan{.method = AlignmentMethod::grpo, .generations = 3};
  PolicyLossOptions& loss = plan.policy_loss;
  loss.max_completion_length = 9;
  for (const auto& [type, name] : EnumNames<PolicyLossType>::value)
    if (name == kind) loss.type = type;
  if (kind == "clip_higher") loss.epsilon_high = 0.28;
  if (kind == "cispo") loss.epsilon_high = 1.28;
  if (kind.starts_with("kl")) loss.beta = 0.04, loss.corrects_kl = kind == "kl";
  if (kind == "sequence") loss.type = PolicyLossType::grpo, loss.level = ImportanceLevel::sequence;
  if (kind == "delta") loss.delta = 1.1;
  if (kind == "temperature") loss.temperature = 0.7;
  if (kind == "top_entropy") plan.top_entropy = 0.5;
  return plan;
}

void expect_golden_on(const MeshLayout& mesh, const std::string& kind) {
  SCOPED_TRACE(kind);
  const test::TrainingCase of{
      .model = ModelSource(policy()).config(), .mesh = mesh, .load = [](ShardedModel& model, Decoder&) {
        model.load(ModelSource(policy()).weights());
      }};
  const AlignmentPlan plan = plan_of(kind);
  const ProbeOutput output = of.on_rank(0, [&](TrainingRank& rank) {
    const PolicyInput input = read_policy_input(rank.context, golden(), rank.decoder.config().vocab_size, plan);
    return probe_policy(
        rank.model, rank.decoder, input, plan, true,
        {.micro_batches = mesh.sizes.pipeline > 1 ? 2 : 1, .schedule = schedule_at(rank.mesh, mesh.pipeline())});
  });
  const Context context = Context::reference();
  const SafetensorsFile expected(golden());
  size_t gradients = 0, stored = 0;
  for (const auto& [name, tensor] : output) {
    const bool is_gradient = name.starts_with("grad.");
    const std::string wanted = is_gradient ? kind + "." + name : name == "loss" ? "loss." + kind : "advantages.group";
    if (name == "entropy") {
      const double of_meta_json = 3.4774394;
      if (kind != "temperature") {
        EXPECT_NEAR(tensor.data<float>()[0], of_meta_json, 5e-6);
      }
      continue;
    }
    if (is_gradient && expected.find(wanted) == nullptr) continue;
    const Tensor want = expected.load(wanted, *context.memory);
    if (is_gradient) {
      ++gradients, test::expect_gradient_close(name, tensor, want, 5e-5);
    } else {
      EXPECT_LE(test::difference(tensor, want).max_abs, 5e-6) << name;
    }
  }
  for (const TensorEntry& entry : expected.entries()) stored += entry.name.starts_with(kind + ".grad.") ? 1 : 0;
  EXPECT_EQ(gradients, stored);
}

TEST(PolicyGolden, one_rank_computes_each_loss) {
  for (const char* kind : {"dapo", "grpo", "bnpo", "dr_grpo", "clip_higher", "kl", "kl_uncorrected", "sequence",
                           "cispo", "delta", "temperature", "top_entropy"})
    expect_golden_on({}, kind);
}

TEST(PolicyGolden, every_layout_computes_them) {
  std::vector<MeshLayout> meshes{test::sharded(2, 0), test::sharded(2, 3)};
  meshes.push_back({.sizes = {.context = 2}});
  meshes.push_back({.sizes = {.pipeline = 2}});
  for (const MeshLayout& mesh : meshes)
    for (const char* kind : {"dapo", "grpo", "kl", "sequence", "top_entropy"}) expect_golden_on(mesh, kind);
}

/// RLOO's loss by hand: of whole answers, whose rewards are less by what they have left the reference.
double rloo_loss(const PolicyInput& input, const TokenLogs& logs, double beta) {
  const size_t rows = input.rows.ids.size();
  std::vector<double> rewards = total_rewards(input.rewards, input.weights), ratios(rows);
  for (size_t row = 0; row < rows; ++row) {
    const std::vector<float> policy = logs.of(static_cast<int64_t>(row), std::ssize(input.rows.ids[row]));
    for (auto at = static_cast<size_t>(input.rows.begins[row]); at < policy.size(); ++at) {
      rewards[row] -= beta * (double{input.written[row][at]} - double{input.known[row][at]});
      ratios[row] += double{policy[at]} - double{input.written[row][at]};
    }
  }
  double loss = 0;
  for (size_t row = 0; row < rows; ++row) {
    const size_t first = row - row % 3;
    const double sum = rewards[first] + rewards[first + 1] + rewards[first + 2];
    const double advantage = rewards[row] - (sum - rewards[row]) / 2, ratio = std::exp(ratios[row]);
    loss -= std::min(ratio * advantage, std::clamp(ratio, 0.8, 1.2) * advantage) / static_cast<double>(rows);
  }
  return loss;
}

TEST(PolicyGolden, rloo_is_its_formula_on_every_layout) {
  AlignmentPlan plan{
      .method = AlignmentMethod::rloo, .leave_one_out = LeaveOneOutOptions{.beta = 0.05}, .generations = 3};
  plan.policy_loss = {.type = PolicyLossType::grpo, .level = ImportanceLevel::sequence, .sums_ratios = true};
  std::vector<MeshLayout> meshes{{}, test::sharded(2, 3)};
  meshes.push_back({.sizes = {.context = 2}});
  meshes.push_back({.sizes = {.pipeline = 2}});
  ProbeOutput one;
  for (const MeshLayout& mesh : meshes) {
    const test::TrainingCase of{
        .model = ModelSource(policy()).config(), .mesh = mesh, .load = [](ShardedModel& model, Decoder&) {
          model.load(ModelSource(policy()).weights());
        }};
    double wanted = 0;
    const ProbeOutput output = of.on_rank(0, [&](TrainingRank& rank) {
      PolicyInput input = read_policy_input(rank.context, golden(), rank.decoder.config().vocab_size, plan);
      std::replace_if(
          input.rewards.begin(), input.rewards.end(), [](double each) { return std::isnan(each); }, 0.5);
      if (mesh.ranks() == 1) {
        std::vector<JudgedAnswer> answers;
        std::vector<int64_t> lengths;
        for (size_t row = 0; row < input.rows.ids.size(); ++row) {
          answers.push_back(
              {.ids = input.rows.ids[row], .begin = input.rows.begins[row], .number = static_cast<int64_t>(row)});
          lengths.push_back(std::ssize(input.rows.ids[row]));
        }
        Engine engine(rank.model);
        const Batch batch = batch_of_answers(*rank.context.memory, answers, {.places = true});
        const MakeBatches batches = [&](const auto& take) { take(batch); };
        wanted = rloo_loss(input, token_logs(engine, rank.model, rank.decoder, batches, lengths, 1), 0.05);
      }
      return probe_policy(
          rank.model, rank.decoder, input, plan, true,
          {.micro_batches = mesh.sizes.pipeline > 1 ? 2 : 1, .schedule = schedule_at(rank.mesh, mesh.pipeline())});
    });
    if (one.empty()) {
      one = output;
      EXPECT_NEAR(double{one.back().second.data<float>()[0]}, wanted, 5e-6);
    }
    for (size_t i = 0; i < one.size(); ++i) {
      const bool is_gradient = one[i].first.starts_with("grad.");
      if (is_gradient) {
        test::expect_gradient_close(one[i].first, output[i].second, one[i].second, 5e-5);
      } else {
        EXPECT_LE(test::difference(output[i].second, one[i].second).max_abs, 5e-6) << one[i].first;
      }
    }
  }
}

/// token_logs() of a model of one layout is what TRL's model says, with tokens in any order over ranks.
TEST(PolicyGolden, what_a_model_says_of_each_token_is_put_together_on_every_layout) {
  std::vector<MeshLayout> meshes{{}, test::sharded(2, 3)};
  meshes.push_back({.sizes = {.context = 2}});
  meshes.push_back({.sizes = {.pipeline = 2}});
  const AlignmentPlan plan = plan_of("kl");
  for (const MeshLayout& mesh : meshes) {
    const test::TrainingCase of{
        .model = ModelSource(policy()).config(), .mesh = mesh, .load = [](ShardedModel& model, Decoder&) {
          model.load(ModelSource(FoundModel{.folder = test::golden_folder("align/reference")}).weights());
        }};
    of.on_rank(0, [&](TrainingRank& rank) {
      const PolicyInput input = read_policy_input(rank.context, golden(), rank.decoder.config().vocab_size, plan);
      const PairInput& rows = input.rows;
      Engine engine(rank.model);
      engine.set_schedule(schedule_at(rank.mesh, mesh.pipeline()));
      const std::vector<Batch> batches =
          probe_batches(std::ssize(rows.ids), rank.mesh.group(Group::samples), 1, [&](Interval own) {
            std::vector<JudgedAnswer> answers;
            for (int64_t row = own.begin; row < own.end; ++row) {
              const auto at = static_cast<size_t>(row);
              answers.push_back({.ids = rows.ids[at], .begin = rows.begins[at], .number = row});
            }
            return batch_of_answers(*rank.context.memory, answers, {.places = true});
          });
      std::vector<int64_t> lengths;
      for (const auto& ids : rows.ids) lengths.push_back(std::ssize(ids));
      const MakeBatches each = [&](const auto& take) {
        for (const Batch& batch : batches) take(batch);
      };
      const TokenLogs logs = token_logs(engine, rank.model, rank.decoder, each, lengths, 1);
      for (size_t row = 0; row < rows.ids.size(); ++row) {
        const std::vector<float> said = logs.of(static_cast<int64_t>(row), lengths[row]);
        for (size_t at = 0; at < said.size(); ++at) {
          const bool answers = static_cast<int64_t>(at) >= rows.begins[row];
          EXPECT_NEAR(said[at], answers ? input.known[row][at] : 0, 1e-5) << row << ", " << at;
        }
      }
      return 0;
    });
  }
}

TEST(PolicyGolden, numbers_of_fewer_tokens_than_rows_have_are_refused) {
  const Context context = Context::cpu();
  const SafetensorsFile whole(golden());
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const char* name : {"input_ids", "completion_mask", "attention_mask", "rewards"})
    if (whole.find(name) != nullptr) tensors.emplace_back(name, whole.load(name, *context.memory));
  const Shape rows = whole.at("input_ids").shape;
  tensors.emplace_back("old_per_token_logps", context.zeros({rows[0], rows[1] - 1}, DType::f32));
  const test::TempFolder folder;
  const std::string path = (folder.path() / "short.safetensors").string();
  save_safetensors(path, tensors);
  EXPECT_THAT(test::message_of<IoError>([&] {
                read_policy_input(context, path, ModelSource(policy()).config().vocab_size, plan_of("dapo"));
              }),
              ::testing::HasSubstr(fmt::format("old_per_token_logps must be F32 {}", rows)));
}

}  // namespace
}  // namespace nought::policy_golden_test

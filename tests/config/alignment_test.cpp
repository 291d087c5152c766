#include <array>

#include "support/resolved.h"
#include <gtest/gtest.h>

#include "nought/config/alignment_plan.h"

namespace nought::alignment_test {
namespace {

using test::error_of;
using test::plan_of;

AlignmentPlan alignment(const std::string& section) { return plan_of(R"({"alignment": )" + section + "}").alignment; }
std::string refusal(const std::string& section) { return error_of(R"({"alignment": )" + section + "}"); }

TEST(Alignment, without_a_method_a_run_learns_from_all_tokens) {
  EXPECT_FALSE(alignment("{}").of_answers());
  EXPECT_FALSE(alignment("{}").has_reference());
}

TEST(Alignment, dpo_has_trls_defaults) {
  const AlignmentPlan plan = alignment(R"({"method": "dpo"})");
  EXPECT_TRUE(plan.of_answers() && plan.has_reference());
  ASSERT_EQ(plan.loss.terms.size(), 1U);
  EXPECT_EQ(plan.loss.terms[0], (std::pair{PairLossType::sigmoid, 1.0}));
  EXPECT_EQ(plan.loss.beta, 0.1);
  EXPECT_EQ(plan.likelihood, 0);
  EXPECT_FALSE(plan.ld_alpha);
}

TEST(Alignment, losses_are_added_with_their_weights) {
  const AlignmentPlan plan =
      alignment(R"({"method": "dpo", "loss_type": ["bco_pair", "sft"], "loss_weights": [0.8, 0.2], "beta": 0.5})");
  EXPECT_EQ(plan.loss.terms[0], (std::pair{PairLossType::bco_pair, 0.8}));
  EXPECT_EQ(plan.likelihood, 0.2);
  EXPECT_FALSE(alignment(R"({"method": "dpo", "loss_type": "sft"})").has_reference());
}

TEST(Alignment, other_methods_have_no_reference) {
  const AlignmentPlan orpo = alignment(R"({"method": "orpo"})");
  EXPECT_TRUE(orpo.likelihood == 1 && orpo.likelihood_of_prompts && !orpo.has_reference());
  const AlignmentPlan cpo = alignment(R"({"method": "cpo"})");
  EXPECT_EQ(cpo.loss.terms[0].first, PairLossType::smoothed);
  EXPECT_TRUE(cpo.likelihood == 1 && !cpo.likelihood_of_prompts && !cpo.has_reference());
}

TEST(Alignment, what_is_not_available_is_refused_by_its_name) {
  const std::vector<std::pair<std::string, std::string>> refused{
      {R"({"method": "kto", "loss_type": "sigmoid"})", "\"sigmoid\" is none of kto, apo_zero_unpaired"},
      {R"({"method": "kto", "desirable_weight": -1})", "alignment.desirable_weight: expected a finite number"},
      {R"({"method": "dpo", "loss_type": "aot"})", "aot sorts the pairs"},
      {R"({"method": "dpo", "loss_type": "simpo"})", "\"simpo\" is none of sigmoid, hinge"},
      {R"({"method": "dpo", "loss_type": []})", "the list is empty"},
      {R"({"method": "dpo", "loss_weights": [1, 2]})", "2 weights for 1 losses"},
      {R"({"method": "dpo", "beta": 0})", "alignment.beta: expected a number > 0"},
      {R"({"method": "dpo", "loss_type": "exo_pair"})", "alignment.label_smoothing = 0"},
      {R"({"method": "dpo", "loss_type": "robust", "label_smoothing": 0.5})", "robust needs a number"},
      {R"({"method": "dpo", "ld_alpha": 2})", "alignment.ld_alpha: expected a number in [0, 1]"},
      {R"({"method": "dpo", "loss_type": "nca_pair", "f_divergence_type": "forward_kl"})", "does not go with the loss"},
      {R"({"method": "orpo", "loss_type": "sigmoid"})", "orpo has one loss"},
      {R"({"method": "dpo", "sync_ref_model": true})", "sync_ref_model"}};
  for (const auto& [section, message] : refused)
    EXPECT_NE(refusal(section).find(message), std::string::npos) << section << refusal(section);
}

TEST(Alignment, runs_have_trls_lengths_and_rates) {
  const RunPlan plan = plan_of(R"({"alignment": {"method": "dpo"}, "training": {"per_device_train_batch_size": 3}})");
  EXPECT_EQ(plan.layout.seq_length, 1024);
  EXPECT_EQ(plan.layout.row_tokens, 3 * 2 * 1024);
  EXPECT_EQ(plan.schedule.peak_lr, 1e-6);
  EXPECT_EQ(plan.data.format, CorpusFormat::preference);
  EXPECT_EQ(plan_of(R"({"alignment": {"method": "dpo", "max_length": 64}})").layout.seq_length, 64);
  EXPECT_EQ(plan_of(R"({"alignment": {"method": "dpo"}, "data": {"seq_length": 80}})").layout.seq_length, 80);
  EXPECT_EQ(plan_of(R"({"alignment": {"method": "cpo"}, "training": {"learning_rate": 0.1}})").schedule.peak_lr, 0.1);
  EXPECT_EQ(plan_of("{}").layout.row_tokens, 0);
}

TEST(Alignment, what_does_not_go_with_pairs_is_refused) {
  const auto refused = [](const std::string& rest) {
    return error_of(R"({"alignment": {"method": "dpo"}, )" + rest + "}");
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"("data": {"format": "chat"})", "learns from what was judged"},
      {R"("data": {"separate_documents": true})", "answers never attend to each other"},
      {R"("training": {"virtual_ranks": 1})", "training.virtual_ranks does not go with"}};
  for (const auto& [rest, message] : cases)
    EXPECT_NE(refused(rest).find(message), std::string::npos) << rest << refused(rest);
  EXPECT_NE(error_of(R"({"adapter": {"r": 4}, "model": "m", "alignment": {"method": "dpo", "ref_model": "r"}})")
                .find("the model without it"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method": "orpo", "ref_model": "r"})").find("orpo asks no reference model"), std::string::npos);
  EXPECT_NE(error_of(R"({"data": {"format": "preference"}})").find("are for alignment.method"), std::string::npos);
}

TEST(Alignment, kto_learns_from_answers_with_labels) {
  const std::string two = R"("training": {"per_device_train_batch_size": 2})";
  const RunPlan plan = plan_of(R"({"alignment": {"method": "kto", "undesirable_weight": 0.5}, )" + two + "}");
  EXPECT_TRUE(plan.alignment.of_labels() && plan.alignment.has_reference() && plan.alignment.asks_kl());
  EXPECT_EQ(plan.alignment.label_loss.undesirable_weight, 0.5);
  EXPECT_EQ(plan.data.format, CorpusFormat::unpaired);
  EXPECT_EQ(plan.layout.row_tokens, 2 * 1024);
  EXPECT_NE(error_of(R"({"alignment": {"method": "kto"}, "training": {"per_device_train_batch_size": 1}})")
                .find("set per_device_train_batch_size to 2 or more"),
            std::string::npos);
}

TEST(Alignment, heads_that_score_have_keys_of_their_own) {
  const AlignmentPlan reward = alignment(R"({"method": "reward", "center_rewards_coefficient": 0.01})");
  EXPECT_TRUE(reward.of_scores() && !reward.has_reference());
  EXPECT_EQ(reward.center, 0.01);
  EXPECT_EQ(plan_of(R"({"alignment": {"method": "reward"}})").schedule.peak_lr, 1e-4);
  const AlignmentPlan classes = alignment(R"({"method": "classify", "num_labels": 3})");
  EXPECT_EQ(classes.labels, 3);
  EXPECT_EQ(classes.answers_per_sample(), 1);
  EXPECT_NE(refusal(R"({"method": "dpo", "num_labels": 3})").find("only classify reads it"), std::string::npos);
  EXPECT_NE(refusal(R"({"method": "classify", "num_labels": 0})").find("expected a number > 0"), std::string::npos);
  EXPECT_NE(error_of(R"({"model": "m", "adapter": {"r": 4}, "alignment": {"method": "classify"}})")
                .find("whose head is new are not supported yet"),
            std::string::npos);
}

TEST(Alignment, grpo_has_trls_keys_and_defaults) {
  const AlignmentPlan plan = alignment(R"({"method": "grpo"})");
  EXPECT_EQ(plan.policy_loss.type, PolicyLossType::dapo);
  EXPECT_EQ(plan.policy_loss.beta, 0);
  EXPECT_EQ(plan.generations, 8);
  EXPECT_EQ(alignment(R"({"method": "grpo", "epsilon": 0.1})").policy_loss.epsilon_high, 0.1);
  EXPECT_NE(refusal(R"({"method": "grpo", "loss_type": "sapo"})").find("is none of dapo"), std::string::npos);
  EXPECT_NE(refusal(R"({"method": "grpo", "loss_type": "cispo"})").find("set epsilon_high"), std::string::npos);
  const AlignmentPlan drawn =
      alignment(R"({"method": "grpo", "top_k": 5, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.2})");
  EXPECT_EQ(drawn.sampling.top_k, 5);
  EXPECT_EQ(drawn.sampling.top_p, 0.9);
  EXPECT_EQ(drawn.sampling.min_p, 0.1);
  EXPECT_EQ(drawn.sampling.repetition_penalty, 1.2);
  EXPECT_NE(refusal(R"({"method": "grpo", "top_p": 0})").find("top_p: expected a number > 0"), std::string::npos);
  EXPECT_NE(refusal(R"({"method": "grpo", "top_k": -1})").find("top_k: expected"), std::string::npos);
  EXPECT_NE(refusal(R"({"method": "grpo", "top_entropy_quantile": 0})").find("expected a number > 0 and <= 1, got 0"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method": "grpo", "min_p": 2})").find("min_p: expected"), std::string::npos);
  EXPECT_NE(refusal(R"({"method": "grpo", "num_generations": 1})").find("2 answers or more"), std::string::npos);
}

TEST(Alignment, rloo_has_trls_keys_and_defaults) {
  const AlignmentPlan plan = alignment(R"({"method": "rloo"})");
  EXPECT_TRUE(plan.of_rewards() && plan.has_reference() && plan.penalises_divergence());
  EXPECT_EQ(plan.leave_one_out->beta, 0.05);
  EXPECT_EQ(plan.policy_loss.beta, 0);
  EXPECT_TRUE(plan.policy_loss.sums_ratios && !plan.policy_loss.counts_tokens());
  EXPECT_EQ(plan.generations, 2);
  EXPECT_EQ(plan.policy_loss.max_completion_length, 512);
  EXPECT_EQ(plan.describe(), "rloo, beta 0.05");
  EXPECT_FALSE(alignment(R"({"method": "rloo", "beta": 0})").has_reference());
  const AlignmentPlan other =
      alignment(R"({"method": "rloo", "normalize_advantages": true, "reward_clip_range": [-1, 2]})");
  EXPECT_TRUE(other.leave_one_out->normalizes);
  EXPECT_EQ(other.leave_one_out->clip_range->back(), 2);
  EXPECT_NE(refusal(R"({"method": "rloo", "loss_type": "dapo"})").find("rloo has one loss"), std::string::npos);
  EXPECT_NE(refusal(R"({"method": "rloo", "delta": 2})").find("only grpo reads it"), std::string::npos);
  EXPECT_NE(refusal(R"({"method": "rloo", "reward_clip_range": [2, 1]})").find("expected [least, most], got [2, 1]"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method": "dpo", "num_generations": 4})").find("only grpo and rloo read it"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method": "grpo", "normalize_advantages": true})").find("only rloo reads it"),
            std::string::npos);
}

TEST(Alignment, ppo_has_trls_keys_and_defaults) {
  const AlignmentPlan plan = alignment(R"({"method": "ppo", "reward_model": "judge"})");
  EXPECT_TRUE(plan.of_rewards() && plan.has_reference() && plan.keeps_reference());
  const PpoOptions& options = plan.ppo->options;
  EXPECT_EQ((std::array{options.kl_coef, options.gamma, options.lam, options.clip, options.value_clip}),
            (std::array{0.05, 1.0, 0.95, 0.2, 0.2}));
  EXPECT_TRUE(options.value_coef == 0.1 && !options.whitens_rewards && !options.missing_eos_penalty);
  EXPECT_EQ((std::array{plan.policy_loss.max_completion_length, plan.iterations, plan.ppo->mini_batches}),
            (std::array<int64_t, 3>{53, 4, 1}));
  EXPECT_EQ(plan.policy_loss.temperature, 0.7);
  EXPECT_EQ(plan.generations, 1);
  EXPECT_EQ(plan.rewards.at(0).path.value, "judge");
  EXPECT_EQ(plan.ppo->value_model, "judge");
  EXPECT_EQ(plan_of(R"({"alignment": {"method": "ppo"}})").schedule.peak_lr, 5e-5);
  const AlignmentPlan other = alignment(
      R"({"method": "ppo", "kl_coef": 0, "num_mini_batches": 3, "value_model": "v", "stop_token_id": 7,
          "reward_funcs": [{"type": "exact_match"}], "reward_model": "judge", "reward_weights": [0.5]})");
  EXPECT_FALSE(other.has_reference());
  EXPECT_EQ(other.steps_of_answers(4), 3);
  EXPECT_EQ(other.reward_weights, (std::vector<double>{0.5, 1}));
  EXPECT_EQ(other.ppo->value_model, "v");
  EXPECT_EQ(other.ppo->stop_token_id, 7);
  EXPECT_NE(plan.describe(), other.describe());
  const auto expect_refusal = [](const std::string& keys, const std::string& words) {
    const std::string why = refusal(R"({"method": "ppo", )" + keys + "}");
    EXPECT_NE(why.find(words), std::string::npos) << why;
  };
  expect_refusal(R"("beta": 0.1)", "ppo calls it kl_coef");
  expect_refusal(R"("loss_type": "dapo")", "ppo has one loss");
  expect_refusal(R"("epsilon": 0.1)", "only grpo and rloo read it");
  expect_refusal(R"("kl_coef": 0, "ref_model": "r")", "ppo asks no reference model where kl_coef is 0");
  expect_refusal(R"("stop_token": "x")", "expected \"eos\"");
  expect_refusal(R"("stop_token": "eos", "stop_token_id": 3)", "says it: remove one");
  expect_refusal(R"("gamma": 2)", "gamma: expected a number from 0 to 1, got 2");
  expect_refusal(R"("num_ppo_epochs": 0)", "num_ppo_epochs: expected a number > 0, got 0");
  EXPECT_NE(refusal(R"({"method": "grpo", "vf_coef": 1})").find("only ppo reads it"), std::string::npos);
}

TEST(Alignment, gkd_has_trls_keys_and_defaults) {
  const AlignmentPlan plan = alignment(R"({"method": "gkd", "teacher_model": "big"})");
  EXPECT_EQ(plan.distillation->beta, 0.5);
  EXPECT_EQ(plan.distillation->own_share, 0.5);
  EXPECT_TRUE(plan.writes_answers() && !plan.of_rewards() && !plan.has_reference());
  EXPECT_EQ(plan.answers_per_sample(), 1);
  EXPECT_EQ(plan.describe(), "gkd, teacher_model big, beta 0.5, lmbda 0.5, temperature 0.9, max_new_tokens 128");
  EXPECT_FALSE(alignment(R"({"method": "gkd", "lmbda": 0})").writes_answers());
  EXPECT_EQ(plan_of(R"({"alignment": {"method": "gkd"}})").schedule.peak_lr, 2e-5);
  EXPECT_EQ(plan_of(R"({"alignment": {"method": "gkd"}})").data.format, CorpusFormat::completions);
  EXPECT_NE(refusal(R"({"method": "gkd", "beta": 2})").find("alignment.beta: expected a number from 0 to 1"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method": "gkd", "ref_model": "r"})").find("gkd asks no reference model"), std::string::npos);
  EXPECT_NE(refusal(R"({"method": "gkd", "top_k": 3})").find("only grpo, rloo and ppo read it"), std::string::npos);
  EXPECT_NE(refusal(R"({"method": "grpo", "lmbda": 0.1})").find("only gkd reads it"), std::string::npos);
  EXPECT_NE(refusal(R"({"method": "gkd", "teacher_model": "t", "max_length": 64, "max_new_tokens": 64})")
                .find("leaves no token for a prompt"),
            std::string::npos);
}

TEST(Alignment, grpo_is_judged_by_rewards) {
  const AlignmentPlan plan = alignment(R"({"method": "grpo", "reward_weights": [1, 0.5], "reward_funcs": [
      {"type": "exact_match", "extract": "number"}, {"type": "regex", "name": "form", "pattern": "^<think>"}]})");
  EXPECT_EQ(plan.rewards.at(1).pattern.value, "^<think>");
  EXPECT_EQ(plan.describe(), "grpo, dapo, beta 0, rewards exact_match x 1, form x 0.5");
  const auto why = [](const std::string& rewards) {
    return refusal(R"({"method": "grpo", "reward_funcs": [)" + rewards + "]}");
  };
  EXPECT_NE(why(R"({"type": "regex"})").find("alignment.reward_funcs[0]: reward regex has no pattern"),
            std::string::npos);
  EXPECT_NE(why(R"({"type": "regex", "pattern": "("})").find("is malformed"), std::string::npos);
  EXPECT_NE(why(R"({"type": "exact_match"}, {"type": "exact_match"})").find("give each a \"name\""), std::string::npos);
  EXPECT_NE(why(R"({"type": "exact_match", "colum": "a"})").find("colum"), std::string::npos);
  EXPECT_NE(why(R"({"type": "exact_match"}], "reward_weights": [1, 2)").find("2 weights for 1 reward_funcs"),
            std::string::npos);
}

TEST(Alignment, grpo_needs_whole_groups_and_room) {
  const auto why = [](const std::string& keys, int batch) {
    return error_of(R"({"alignment": {"method": "grpo", "reward_funcs": [{"type": "exact_match"}])" + keys +
                    R"(}, "training": {"per_device_train_batch_size": )" + std::to_string(batch) + "}}");
  };
  EXPECT_NE(why("", 12).find("groups of 8 answers do not divide the 12 answers of a step"), std::string::npos);
  EXPECT_NE(why(R"(, "steps_per_generation": 0)", 8).find("make it a multiple"), std::string::npos);
  EXPECT_NE(why(R"(, "num_iterations": 0)", 8).find("num_iterations: expected a number > 0"), std::string::npos);
  EXPECT_NE(why(R"(, "ref_model": "x")", 8).find("asks no reference model where beta is 0"), std::string::npos);
  EXPECT_NE(why(R"(, "max_length": 64, "max_completion_length": 64)", 8).find("leaves no token for a prompt"),
            std::string::npos);
}

TEST(Alignment, a_resumed_run_is_told_what_has_changed) {
  EXPECT_EQ(alignment(R"({"method": "dpo", "ld_alpha": 0.5})").describe(), "dpo, sigmoid x 1, beta 0.1, ld_alpha 0.5");
  EXPECT_NE(alignment(R"({"method": "dpo", "beta": 0.2})").describe(), alignment(R"({"method": "dpo"})").describe());
}

}  // namespace
}  // namespace nought::alignment_test

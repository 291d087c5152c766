// Rewards: numbers that say how good an answer to a prompt is, found by rules, as TRL's reward functions are.
//
// Design goals: an answer gets the same number wherever and beside whatever it is judged; an answer that a rule has no
// number for is not scored, and stops no run. Non-goals: what is made of the numbers (nn/policy_loss.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/rewards/reward_config.h"

namespace nought {

/// An answer to a prompt.
struct WrittenAnswer {
  const Json& columns;           // the prompt's record of the data
  std::string_view text;         // without special tokens
  std::span<const int32_t> ids;  // with the token that ends it
};

class Reward {
 public:
  virtual ~Reward() = default;
  /// A number for each answer; NaN: it is not scored.
  virtual std::vector<double> of(std::span<const WrittenAnswer> answers) = 0;
  /// ConfigError if answers to prompts with such a record can not be scored.
  virtual void require_columns(const Json& /*columns*/) const {}
};

/// A reward that judges each answer by itself.
class RuleReward : public Reward {
 public:
  std::vector<double> of(std::span<const WrittenAnswer> answers) final {
    std::vector<double> scores;
    for (const WrittenAnswer& answer : answers) scores.push_back(of_one(answer));
    return scores;
  }

 private:
  virtual double of_one(const WrittenAnswer& answer) const = 0;
};

/// Makes the reward of a config; null for a model, which all ranks ask together (train/reward_model.h).
/// max_completion_length: the most tokens of an answer. ConfigError names the key.
std::unique_ptr<Reward> make_reward(const RewardConfig& config, int64_t max_completion_length);
/// What metrics call it.
std::string reward_name(const RewardConfig& config);

/// The part of an answer that is compared; "": there is none.
std::string extracted(std::string_view answer, RewardExtract what, std::string_view marker);
/// Whether two answers are the same: as numbers, where both are, else letter by letter.
bool same_answer(std::string_view one, std::string_view other);

}  // namespace nought

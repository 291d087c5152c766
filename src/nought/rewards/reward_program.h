// RewardProgram: a program that judges answers, as the user's own reward function does in TRL.
//
// It is started once, when there is something to judge, without a shell. It reads a line of JSON for each answer, {id,
// prompt, completion, completion_ids, and the other columns of the prompt's record}, and writes a line for each, {id,
// reward}, in any order; null: not scored. What it writes to stderr goes to the user. One that ends too early is
// started once more. Its standard input is closed when the run ends.
#pragma once

#include <string>
#include <vector>

#include "nought/rewards/reward.h"

namespace nought {

class RewardProgram final : public Reward {
 public:
  /// seconds: how long one call may take.
  RewardProgram(std::string name, std::vector<std::string> command, double seconds)
      : name_(std::move(name)), command_(std::move(command)), seconds_(seconds) {}
  ~RewardProgram() override;
  RewardProgram(const RewardProgram&) = delete;
  RewardProgram& operator=(const RewardProgram&) = delete;

  /// IoError, which names the program: it can not be started, ends twice, takes too long, or answers what is no reward.
  std::vector<double> of(std::span<const WrittenAnswer> answers) override;

 private:
  void start();
  /// Ends it, kindly at first. Returns how it ended.
  std::string stop();
  /// Sends the lines, and takes as many back as there are answers. False if it has ended.
  bool exchange(const std::string& lines, std::vector<double>& scores);
  /// Takes the whole lines out of received_. Returns how many of them are rewards.
  size_t take_lines(std::vector<double>& scores, std::vector<bool>& known);
  void take(const std::string& line, std::vector<double>& scores, std::vector<bool>& known) const;

  std::string name_;
  std::vector<std::string> command_;
  double seconds_;
  int pid_ = -1, socket_ = -1;
  bool started_again_ = false;
  long first_ = 0;  // the number of the first answer of a call
  std::string received_;
};

}  // namespace nought

// RewardConfig: one of alignment.reward_funcs of RUN.json as it was written: what judges the answers of a model.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "nought/base/visit.h"

namespace nought {

enum class RewardType : uint8_t { regex, exact_match, length, repetition, soft_overlong, reward_model, command };

template <>
struct EnumNames<RewardType> {
  static constexpr std::array<std::pair<RewardType, std::string_view>, 7> value{
      {{RewardType::regex, "regex"},
       {RewardType::exact_match, "exact_match"},
       {RewardType::length, "length"},
       {RewardType::repetition, "repetition"},
       {RewardType::soft_overlong, "soft_overlong"},
       {RewardType::reward_model, "reward_model"},
       {RewardType::command, "command"}}};
};

/// Which part of an answer is compared.
enum class RewardExtract : uint8_t {
  whole,   // all of it
  number,  // the last number in it
  boxed,   // what stands in the last \boxed{}
  marker   // the rest of the line behind the last marker
};

template <>
struct EnumNames<RewardExtract> {
  static constexpr std::array<std::pair<RewardExtract, std::string_view>, 4> value{{{RewardExtract::whole, "whole"},
                                                                                    {RewardExtract::number, "number"},
                                                                                    {RewardExtract::boxed, "boxed"},
                                                                                    {RewardExtract::marker, "marker"}}};
};

struct RewardConfig {
  RewardType type = RewardType::exact_match;
  Setting<std::string> name;
  Setting<std::string> path;
  Setting<std::string> pattern;
  Setting<std::string> column{"answer"};
  Setting<RewardExtract> extract{RewardExtract::whole};
  Setting<std::string> marker{"####"};
  Setting<int64_t> target_length;
  Setting<int64_t> ngram_size{3};
  Setting<double> max_penalty{-1.0};
  Setting<int64_t> max_completion_len;
  Setting<int64_t> soft_punish_cache;
  Setting<std::vector<std::string>> command;
  Setting<double> timeout_seconds{60.0};

  template <class V>
  void visit(V& v) {
    v("type", type,
      "regex (1 where the pattern is found, else 0), exact_match (1 where the answer is that of a column of the data), "
      "length (1 at target_length tokens, less by the share that is missing or too much), repetition and "
      "soft_overlong (TRL's, at most 0), reward_model (a model that scores texts), or command (a program that "
      "reads and answers lines of JSON)");
    v("name", name, "what metrics call it; default: its type");
    v("path", path,
      "reward_model: the folder of an XForSequenceClassification with one label, whose vocabulary is that of the "
      "model");
    v("pattern", pattern, "regex: a regular expression; (?s) at its beginning lets a dot match newlines");
    v("column", column, "exact_match: the key of the data's records that holds the answer");
    v("extract", extract,
      "exact_match: what is compared: whole (the answer without blanks around it), number (the last one), boxed (what "
      "stands in the last \\boxed{}) or marker (the rest of the line behind the last marker); numbers are compared as "
      "numbers");
    v("marker", marker, "exact_match: what stands before the answer");
    v("target_length", target_length, "length: tokens of an answer");
    v("ngram_size", ngram_size, "repetition: tokens that count as the same again");
    v("max_penalty", max_penalty, "repetition: the reward of an answer that is all repetition");
    v("max_completion_len", max_completion_len,
      "soft_overlong: longer answers get -1; default: alignment.max_completion_length");
    v("soft_punish_cache", soft_punish_cache, "soft_overlong: so many tokens before that the reward begins to fall");
    v("command", command, "command: the program and its arguments, a list of texts, without a shell");
    v("timeout_seconds", timeout_seconds, "command: how long a step's answers may take it");
  }
};

}  // namespace nought

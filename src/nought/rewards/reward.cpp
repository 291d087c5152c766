#include "nought/rewards/reward.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "nought/rewards/reward_program.h"
#include "nought/text/regex.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

constexpr double kNotScored = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kBlank = " \t\r\n";

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos ? std::string_view{}
                                         : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool is_digit(char c) { return '0' <= c && c <= '9'; }

/// "1,234.50" and "$1234.5" are numbers.
std::optional<double> number_in(std::string_view text) {
  std::string digits;
  for (const char c : without_blanks(text))
    if (c != ',' && c != '$') digits += c;
  if (digits.starts_with('+')) digits.erase(0, 1);
  double value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, value);
  if (digits.empty() || error != std::errc() || rest != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string last_number(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && !is_digit(text[end - 1])) --end;
  size_t begin = end;
  const auto belongs = [&](size_t at) {
    if (is_digit(text[at])) return true;
    // A mark within a number has digits on both sides.
    return (text[at] == '.' || text[at] == ',') && at > 0 && is_digit(text[at - 1]);
  };
  while (begin > 0 && belongs(begin - 1)) --begin;
  const bool negative = begin > 0 && text[begin - 1] == '-' && (begin == 1 || !is_digit(text[begin - 2]));
  return std::string(text.substr(negative ? begin - 1 : begin, end - begin + (negative ? 1 : 0)));
}

std::string last_boxed(std::string_view text) {
  constexpr std::string_view kBoxed = "\\boxed{";
  const size_t at = text.rfind(kBoxed);
  if (at == std::string_view::npos) return "";
  const size_t begin = at + kBoxed.size();
  int depth = 1;
  for (size_t end = begin; end < text.size(); ++end) {
    depth += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
    if (depth == 0) return std::string(without_blanks(text.substr(begin, end - begin)));
  }
  return "";
}

/// Each byte that belongs to no character is one that stands for it.
std::string as_utf8(std::string_view text) {
  std::string valid;
  for (size_t at = 0; at < text.size();) {
    const size_t good = valid_utf8_prefix(text.substr(at));
    valid += text.substr(at, good);
    at += good;
    if (at < text.size()) append_utf8(valid, U'\uFFFD'), ++at;
  }
  return valid;
}

class RegexReward final : public RuleReward {
 public:
  explicit RegexReward(const std::string& pattern) : regex_(pattern) {}
  double of_one(const WrittenAnswer& answer) const override {
    try {
      return regex_.is_in(as_utf8(answer.text)) ? 1 : 0;
    } catch (const ConfigError&) {  // this text takes the expression too many steps
      return kNotScored;
    }
  }

 private:
  Regex regex_;
};

class ExactMatchReward final : public RuleReward {
 public:
  explicit ExactMatchReward(const RewardConfig& config)
      : column_(config.column.value), marker_(config.marker.value), extract_(config.extract.value) {}
  double of_one(const WrittenAnswer& answer) const override {
    const Json& wanted = answer.columns.at(column_);
    if (wanted.is_null()) return kNotScored;
    // Data such as GSM8K have the way to the answer in the same column.
    const std::string text = wanted.is_string() ? wanted.get<std::string>() : wanted.dump();
    const std::string known = extracted(text, extract_, marker_);
    return same_answer(extracted(answer.text, extract_, marker_), known.empty() ? text : known) ? 1 : 0;
  }
  void require_columns(const Json& columns) const override {
    const auto found = columns.find(column_);
    require<ConfigError>(found != columns.end(), "has no \"{}\", which reward exact_match compares answers with",
                         column_);
    require<ConfigError>(!found->is_structured(), "\"{}\" is {}, expected a text or a number for reward exact_match",
                         column_, describe_json(*found));
  }

 private:
  std::string column_, marker_;
  RewardExtract extract_;
};

class LengthReward final : public RuleReward {
 public:
  explicit LengthReward(int64_t target) : target_(static_cast<double>(target)) {}
  double of_one(const WrittenAnswer& answer) const override {
    return std::max(0.0, 1 - std::abs(static_cast<double>(answer.ids.size()) - target_) / target_);
  }

 private:
  double target_;
};

/// TRL's get_repetition_penalty_reward(), of tokens in place of words.
class RepetitionReward final : public RuleReward {
 public:
  RepetitionReward(int64_t size, double penalty) : size_(static_cast<size_t>(size)), penalty_(penalty) {}
  double of_one(const WrittenAnswer& answer) const override {
    if (answer.ids.size() < size_) return 0;
    std::set<std::vector<int32_t>> different;
    const size_t all = answer.ids.size() - size_ + 1;
    for (size_t i = 0; i < all; ++i) different.emplace(answer.ids.begin() + i, answer.ids.begin() + i + size_);
    return penalty_ * (1 - static_cast<double>(different.size()) / static_cast<double>(all));
  }

 private:
  size_t size_;
  double penalty_;
};

/// TRL's get_soft_overlong_punishment() (DAPO, arXiv 2503.14476, equation 13).
class SoftOverlongReward final : public RuleReward {
 public:
  SoftOverlongReward(int64_t most, int64_t cache) : most_(most), cache_(cache) {}
  double of_one(const WrittenAnswer& answer) const override {
    const auto length = std::ssize(answer.ids);
    if (length <= most_ - cache_) return 0;
    if (length > most_) return -1;
    return static_cast<double>(most_ - cache_ - length) / static_cast<double>(cache_);
  }

 private:
  int64_t most_, cache_;
};

void require_positive(const char* key, const Setting<int64_t>& setting, const std::string& name) {
  require<ConfigError>(setting.given || setting.has_default, "reward {} has no {}", name, key);
  require<ConfigError>(setting.value > 0, "{} of reward {}: expected a number > 0, got {}", key, name, setting.value);
}

}  // namespace

std::string extracted(std::string_view answer, RewardExtract what, std::string_view marker) {
  switch (what) {
    case RewardExtract::whole:
      return std::string(without_blanks(answer));
    case RewardExtract::number:
      return last_number(answer);
    case RewardExtract::boxed:
      return last_boxed(answer);
    case RewardExtract::marker:
      break;
  }
  const size_t at = answer.rfind(marker);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = answer.substr(at + marker.size());
  return std::string(without_blanks(rest.substr(0, rest.find('\n'))));
}

bool same_answer(std::string_view one, std::string_view other) {
  const std::optional<double> a = number_in(one), b = number_in(other);
  if (a && b) return *a == *b;
  return without_blanks(one) == without_blanks(other);
}

std::string reward_name(const RewardConfig& config) {
  return config.name.given ? config.name.value : std::string(enum_name(config.type));
}

std::unique_ptr<Reward> make_reward(const RewardConfig& config, int64_t max_completion_length) {
  const std::string name = reward_name(config);
  switch (config.type) {
    case RewardType::regex:
      require<ConfigError>(config.pattern.given, "reward {} has no pattern", name);
      return std::make_unique<RegexReward>(config.pattern.value);
    case RewardType::exact_match:
      require<ConfigError>(config.extract.value != RewardExtract::marker || !config.marker.value.empty(),
                           "marker of reward {} is empty", name);
      return std::make_unique<ExactMatchReward>(config);
    case RewardType::length:
      require_positive("target_length", config.target_length, name);
      return std::make_unique<LengthReward>(config.target_length.value);
    case RewardType::repetition:
      require_positive("ngram_size", config.ngram_size, name);
      require<ConfigError>(std::isfinite(config.max_penalty.value) && config.max_penalty.value <= 0,
                           "max_penalty of reward {}: expected a number <= 0, got {}", name, config.max_penalty.value);
      return std::make_unique<RepetitionReward>(config.ngram_size.value, config.max_penalty.value);
    case RewardType::soft_overlong: {
      require_positive("soft_punish_cache", config.soft_punish_cache, name);
      const int64_t most = config.max_completion_len.given ? config.max_completion_len.value : max_completion_length;
      require<ConfigError>(most >= config.soft_punish_cache.value,
                           "soft_punish_cache {} of reward {} is more than max_completion_len {}",
                           config.soft_punish_cache.value, name, most);
      return std::make_unique<SoftOverlongReward>(most, config.soft_punish_cache.value);
    }
    case RewardType::command:
      require<ConfigError>(!config.command.value.empty(), "reward {} has no command", name);
      require<ConfigError>(config.timeout_seconds.value > 0,
                           "timeout_seconds of reward {}: expected a number > 0, got {}", name,
                           config.timeout_seconds.value);
      return std::make_unique<RewardProgram>(name, config.command.value, config.timeout_seconds.value);
    case RewardType::reward_model:
      break;
  }
  require<ConfigError>(!config.path.value.empty(), "reward {} has no path: name the folder of the model", name);
  return nullptr;
}

}  // namespace nought

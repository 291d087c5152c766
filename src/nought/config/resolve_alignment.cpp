// The section alignment: which method, and its loss.
#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "nought/config/resolve_steps.h"
#include "nought/rewards/reward.h"

namespace nought {

namespace {

constexpr PairLossType kOfDpo[] = {PairLossType::sigmoid,     PairLossType::hinge,     PairLossType::ipo,
                                   PairLossType::exo_pair,    PairLossType::nca_pair,  PairLossType::robust,
                                   PairLossType::bco_pair,    PairLossType::sppo_hard, PairLossType::apo_zero,
                                   PairLossType::apo_down,    PairLossType::discopop,  PairLossType::sft,
                                   PairLossType::sigmoid_norm};
constexpr PairLossType kOfCpo[] = {PairLossType::sigmoid, PairLossType::hinge, PairLossType::ipo, PairLossType::simpo};
/// Losses of the difference of two scores, in which the constant of another divergence cancels.
constexpr PairLossType kOfDifferences[] = {PairLossType::sigmoid,  PairLossType::sigmoid_norm, PairLossType::hinge,
                                           PairLossType::ipo,      PairLossType::exo_pair,     PairLossType::robust,
                                           PairLossType::discopop, PairLossType::sft};

bool is_among(PairLossType type, std::span<const PairLossType> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

std::vector<PairLossType> loss_types(const Resolver& r, std::span<const PairLossType> known) {
  const Json& given = r.config.alignment.loss_type;
  const std::string place = r.origins.place("alignment.loss_type");
  std::vector<std::string_view> names;
  for (const PairLossType each : known) names.push_back(enum_name(each));
  std::vector<PairLossType> types;
  for (const Json& each : given.is_array() ? given : Json::array({given})) {
    require<ConfigError>(each.is_string(), "{}: expected a name or a list of names, found {}", place,
                         describe_json(each));
    const auto name = each.get<std::string>();
    require<ConfigError>(name != "aot" && name != "aot_unpaired",
                         "{}: {} sorts the pairs of a micro-batch, so that its value would depend on the layout: it is "
                         "not available; take sigmoid",
                         place, name);
    const auto found = std::find(names.begin(), names.end(), name);
    require<ConfigError>(found != names.end(), "{}: \"{}\" is none of {}", place, name, fmt::join(names, ", "));
    types.push_back(known[static_cast<size_t>(found - names.begin())]);
  }
  require<ConfigError>(!types.empty(), "{}: the list is empty", place);
  return types;
}

void take_terms(Resolver& r, std::span<const PairLossType> known) {
  const AlignmentConfig& config = r.config.alignment;
  AlignmentPlan& plan = r.plan.alignment;
  const std::vector<PairLossType> types =
      config.loss_type.is_null() ? std::vector{PairLossType::sigmoid} : loss_types(r, known);
  const std::vector<double>& weights = config.loss_weights.value;
  require<ConfigError>(!config.loss_weights.given || weights.size() == types.size(),
                       "{}: {} weights for {} losses: give one for each", r.origins.place("alignment.loss_weights"),
                       weights.size(), types.size());
  plan.loss.terms.clear();
  for (size_t i = 0; i < types.size(); ++i) {
    const double weight = config.loss_weights.given ? weights[i] : 1;
    require<ConfigError>(std::isfinite(weight), "{}: expected finite numbers",
                         r.origins.place("alignment.loss_weights"));
    if (types[i] == PairLossType::sft) plan.likelihood += weight;
    plan.loss.terms.emplace_back(types[i], weight);
  }
}

void take_reference(Resolver& r) {
  const Setting<std::string>& given = r.config.alignment.ref_model;
  AlignmentPlan& plan = r.plan.alignment;
  if (!given.given) return;
  const auto model = r.section_value("alignment.ref_model", given);
  require<ConfigError>(plan.has_reference(), "{}: {} asks no reference model{}: remove it", model.place,
                       enum_name(plan.method),
                       plan.ppo            ? " where kl_coef is 0"
                       : plan.of_rewards() ? " where beta is 0"
                                           : "");
  require<ConfigError>(!r.plan.adapts(),
                       "{}: the reference of an adapter is the model without it: remove this key, or train all",
                       model.place);
  plan.ref_model = r.note("ref_model", model);
}

/// What the methods that compare log-probabilities share.
void take_beta(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  PairLossOptions& loss = r.plan.alignment.loss;
  auto beta = r.section_value("alignment.beta", config.beta);
  if (!beta.given) beta.value = 0.1;
  require<ConfigError>(std::isfinite(beta.value) && beta.value > 0, "{}: expected a number > 0, got {}", beta.place,
                       beta.value);
  loss.beta = r.note("beta", beta);
  loss.label_smoothing = config.label_smoothing.value;
  loss.divergence = config.f_divergence_type.value, loss.alpha = config.f_alpha_divergence_coef.value;
  loss.discopop_tau = config.discopop_tau.value, loss.simpo_gamma = config.simpo_gamma.value;
}

void take_dpo(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  AlignmentPlan& plan = r.plan.alignment;
  take_terms(r, kOfDpo);
  const double smoothing = plan.loss.label_smoothing;
  const auto has = [&](PairLossType type) {
    return std::any_of(plan.loss.terms.begin(), plan.loss.terms.end(),
                       [&](const auto& term) { return term.first == type; });
  };
  const std::string place = r.origins.place("alignment.label_smoothing");
  require<ConfigError>(!has(PairLossType::exo_pair) || (0 < smoothing && smoothing < 1),
                       "{} = {}: exo_pair needs a number between 0 and 1, such as 0.001", place, smoothing);
  require<ConfigError>(!has(PairLossType::robust) || (0 <= smoothing && smoothing < 0.5),
                       "{} = {}: robust needs a number in [0, 0.5)", place, smoothing);
  for (const auto& [type, weight] : plan.loss.terms)
    require<ConfigError>(plan.loss.divergence == Divergence::reverse_kl || is_among(type, kOfDifferences),
                         "{} = {} does not go with the loss {}, which is not one of a difference of two scores",
                         r.origins.place("alignment.f_divergence_type"), enum_name(plan.loss.divergence),
                         enum_name(type));
  if (config.ld_alpha.given) {
    const auto alpha = r.section_value("alignment.ld_alpha", config.ld_alpha);
    require<ConfigError>(0 <= alpha.value && alpha.value <= 1, "{}: expected a number in [0, 1], got {}", alpha.place,
                         alpha.value);
    plan.ld_alpha = r.note("ld_alpha", alpha);
  }
}

void take_cpo(Resolver& r) {
  AlignmentPlan& plan = r.plan.alignment;
  take_terms(r, kOfCpo);
  for (auto& [type, weight] : plan.loss.terms)
    if (type == PairLossType::sigmoid) type = PairLossType::smoothed;
  plan.likelihood = r.note("cpo_alpha", r.section_value("alignment.cpo_alpha", r.config.alignment.cpo_alpha));
}

void take_kto(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  LabelLossOptions& loss = r.plan.alignment.label_loss;
  const Json& type = config.loss_type;
  require<ConfigError>(type.is_null() || type == "kto" || type == "apo_zero_unpaired",
                       "{}: {} is none of kto, apo_zero_unpaired", r.origins.place("alignment.loss_type"), type.dump());
  loss.apo_zero = type == "apo_zero_unpaired";
  loss.beta = r.plan.alignment.loss.beta;
  const auto weight = [&](const char* key, const Setting<double>& setting) {
    const auto value = r.section_value(std::string("alignment.") + key, setting);
    require_finite_at_least_zero(value);
    return r.note(key, value);
  };
  loss.desirable_weight = weight("desirable_weight", config.desirable_weight);
  loss.undesirable_weight = weight("undesirable_weight", config.undesirable_weight);
}

void take_orpo(Resolver& r) {
  AlignmentPlan& plan = r.plan.alignment;
  require<ConfigError>(r.config.alignment.loss_type.is_null(), "{}: orpo has one loss: remove it",
                       r.origins.place("alignment.loss_type"));
  plan.loss.terms = {{PairLossType::odds_ratio, 1}};
  plan.likelihood = 1, plan.likelihood_of_prompts = true;
}

void take_reward(Resolver& r) {
  const auto center =
      r.section_value("alignment.center_rewards_coefficient", r.config.alignment.center_rewards_coefficient);
  require_finite_at_least_zero(center);
  r.plan.alignment.center = r.note("center_rewards_coefficient", center);
}

void take_classify(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  AlignmentPlan& plan = r.plan.alignment;
  if (config.num_labels.given) {
    const auto labels = r.section_value("alignment.num_labels", config.num_labels);
    require<ConfigError>(labels.value > 0, "{}: expected a number > 0, got {}", labels.place, labels.value);
    plan.labels = r.note("num_labels", labels);
  }
  if (config.problem_type.given)
    plan.problem = r.note("problem_type", r.section_value("alignment.problem_type", config.problem_type));
}

CorpusFormat format_of_answers(const AlignmentPlan& alignment) {
  if (alignment.method == AlignmentMethod::classify) return CorpusFormat::scored;
  if (alignment.of_rewards()) return CorpusFormat::prompts;
  if (alignment.method == AlignmentMethod::gkd) return CorpusFormat::completions;
  return alignment.of_labels() ? CorpusFormat::unpaired : CorpusFormat::preference;
}

/// Keys that only runs with a classifier's head read.
void refuse_keys_of_scores(const Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  refuse_unless(r, "center_rewards_coefficient", config.center_rewards_coefficient.given, {AlignmentMethod::reward});
  refuse_unless(r, "num_labels", config.num_labels.given, {AlignmentMethod::classify});
  refuse_unless(r, "problem_type", config.problem_type.given, {AlignmentMethod::classify});
}

/// "grpo, rloo and ppo".
std::string names_in_words(std::span<const std::string_view> names) {
  const auto first = names.first(names.size() - 1);
  return first.empty() ? std::string(names.back()) : fmt::format("{} and {}", fmt::join(first, ", "), names.back());
}

std::string describe_ppo(const AlignmentPlan& plan) {
  const PpoOptions& options = plan.ppo->options;
  std::string text = fmt::format(
      ", kl_coef {} ({}), gamma {}, lam {}, cliprange {}, cliprange_value {}, vf_coef {}, temperature {}, "
      "response_length {}, {} mini-batches",
      options.kl_coef, enum_name(options.kl_estimator), options.gamma, options.lam, options.clip, options.value_clip,
      options.value_coef, plan.policy_loss.temperature, plan.policy_loss.max_completion_length, plan.ppo->mini_batches);
  if (options.whitens_rewards) text += ", whitened rewards";
  if (options.missing_eos_penalty) text += fmt::format(", missing_eos_penalty {}", *options.missing_eos_penalty);
  return text;
}

}  // namespace

void refuse_unless(const Resolver& r, const char* key, bool given, std::initializer_list<AlignmentMethod> methods) {
  const AlignmentMethod own = r.plan.alignment.method;
  std::vector<std::string_view> names;
  for (const AlignmentMethod each : methods) names.push_back(enum_name(each));
  require<ConfigError>(!given || std::find(methods.begin(), methods.end(), own) != methods.end(),
                       "{}: only {} read{} it: remove it", r.origins.place(std::string("alignment.") + key),
                       names_in_words(names), names.size() > 1 ? "" : "s");
}

void require_room_for_prompts(const Resolver& r) {
  const AlignmentPlan& plan = r.plan.alignment;
  const int64_t most = plan.policy_loss.max_completion_length, length = r.plan.layout.seq_length;
  require<ConfigError>(most < length,
                       "{} = {} leaves no token for a prompt: a prompt and its answer have at most {} tokens "
                       "(alignment.max_length, or what the model knows)",
                       r.origins.place(plan.answer_length_key()), most, length);
}

std::string AlignmentPlan::describe() const {
  std::string text{enum_name(method)};
  if (method == AlignmentMethod::reward) return text + fmt::format(", center {}", center);
  if (distillation)
    return text + fmt::format(", teacher_model {}, beta {}, lmbda {}, temperature {}, max_new_tokens {}", teacher_model,
                              distillation->beta, distillation->own_share, policy_loss.temperature,
                              policy_loss.max_completion_length);
  if (of_rewards()) {
    if (ppo)
      text += describe_ppo(*this);
    else
      text += leave_one_out ? fmt::format(", beta {}", leave_one_out->beta)
                            : fmt::format(", {}, beta {}", enum_name(policy_loss.type), policy_loss.beta);
    if (leave_one_out && leave_one_out->normalizes) text += ", normalized advantages";
    if (leave_one_out && leave_one_out->clip_range)
      text +=
          fmt::format(", rewards in [{}, {}]", leave_one_out->clip_range->front(), leave_one_out->clip_range->back());
    if (!ref_model.empty()) text += fmt::format(", ref_model {}", ref_model);
    if (top_entropy < 1) text += fmt::format(", top_entropy_quantile {}", top_entropy);
    if (masks_truncated) text += ", without truncated answers";
    if (iterations > 1) text += fmt::format(", {} iterations", iterations);
    if (steps_per_generation > 0) text += fmt::format(", {} steps_per_generation", steps_per_generation);
    for (size_t i = 0; i < rewards.size(); ++i)
      text += fmt::format("{}{} x {}{}", i == 0 ? ", rewards " : ", ", reward_name(rewards[i]), reward_weights[i],
                          rewards[i].path.value.empty() ? "" : fmt::format(" ({})", rewards[i].path.value));
    return text;
  }
  if (method == AlignmentMethod::classify) return text + (problem ? fmt::format(", {}", enum_name(*problem)) : "");
  if (of_labels())
    return text + fmt::format("{}, beta {}, weights {} and {}{}", label_loss.apo_zero ? " (apo_zero_unpaired)" : "",
                              label_loss.beta, label_loss.desirable_weight, label_loss.undesirable_weight,
                              ref_model.empty() ? "" : ", ref_model " + ref_model);
  for (const auto& [type, weight] : loss.terms) text += fmt::format(", {} x {}", enum_name(type), weight);
  text += fmt::format(", beta {}", loss.beta);
  if (loss.label_smoothing != 0) text += fmt::format(", label_smoothing {}", loss.label_smoothing);
  if (likelihood != 0) text += fmt::format(", likelihood x {}", likelihood);
  if (ld_alpha) text += fmt::format(", ld_alpha {}", *ld_alpha);
  if (!ref_model.empty()) text += fmt::format(", ref_model {}", ref_model);
  return text;
}

Candidate<int64_t> length_of_answers(const Resolver& r, const Candidate<int64_t>& seq_length) {
  auto length = r.section_value("alignment.max_length", r.config.alignment.max_length);
  if (seq_length.given && length.given) require_equal(seq_length, length);
  if (seq_length.given) length = seq_length;
  const int64_t known = model_number(r.config.model, {"max_position_embeddings", "n_positions"});
  if (!length.given && 0 < known && known < length.value) length.value = known, length.reason = kModelLength;
  return length;
}

void check_pair_data(Resolver& r) {
  const DataConfig& data = r.config.data;
  const CorpusFormat own = format_of_answers(r.plan.alignment);
  const bool known =
      data.format.value == own || (own == CorpusFormat::unpaired && data.format.value == CorpusFormat::preference);
  require<ConfigError>(!data.format.given() || known,
                       "{} = \"{}\": alignment.method = {} learns from what was judged (\"{}\"): remove it",
                       r.origins.place("data.format"), enum_name(data.format.value), enum_name(r.plan.alignment.method),
                       enum_name(own));
  require<ConfigError>(!data.separate_documents.given, "{}: answers never attend to each other: remove it",
                       r.origins.place("data.separate_documents"));
  r.plan.data.format = own;
}

void check_alignment(const Resolver& r) {
  const RunPlan& plan = r.plan;
  if (!plan.alignment.of_answers()) return;
  const auto refuse = [&](bool asked, std::string_view what, std::string_view why) {
    require<ConfigError>(!asked, "{} does not go with {}: {}", what, r.origins.place("alignment.method"), why);
  };
  require<ConfigError>(!plan.alignment.asks_kl() || plan.layout.micro_batch > 1,
                       "{} = kto compares each answer with that of another prompt of its micro-batch: set "
                       "per_device_train_batch_size to 2 or more",
                       r.origins.place("alignment.method"));
  refuse(plan.layout.local_steps.has_value(), "training.diloco", "workers would not have the same pairs: remove it");
  refuse(plan.layout.staleness.has_value(), "training.async_staleness",
         "the metrics of a step belong to its update: remove it");
  refuse(plan.layout.sharding.virtual_ranks > 0, "training.virtual_ranks",
         "pairs are spread over ranks by their length: remove it");
  check_rewards(r);
  check_ppo(r);
  check_distillation(r);
  refuse(plan.alignment.of_scores() && plan.adapts(), "an adapter",
         "adapters of a model whose head is new are not supported yet: remove it");
  refuse(plan.alignment.of_scores() && plan.sample.has_value(), "training.sample_prompt",
         "a classifier generates no text: remove it");
  refuse(plan.layout.recompute.unit_tiles > 1, "memory_centric_tiling",
         "a loss of whole answers needs the logits of whole rows: remove it");
}

void resolve_alignment(Resolver& r) {
  const AlignmentConfig& config = r.config.alignment;
  AlignmentPlan& plan = r.plan.alignment;
  plan.method = config.method.value;
  refuse_keys_of_scores(r);
  refuse_keys_of_rewards(r);
  refuse_keys_of_ppo(r);
  refuse_keys_of_distillation(r);
  if (plan.method == AlignmentMethod::sft) return;
  r.note("alignment.method", r.section_value("alignment.method", config.method));
  if (!plan.of_scores() && !plan.of_rewards() && plan.method != AlignmentMethod::gkd) take_beta(r);
  if (plan.of_rewards()) take_policy_beta(r);
  take_reference(r);
  switch (plan.method) {
    case AlignmentMethod::dpo:
      return take_dpo(r);
    case AlignmentMethod::cpo:
      return take_cpo(r);
    case AlignmentMethod::orpo:
      return take_orpo(r);
    case AlignmentMethod::kto:
      return take_kto(r);
    case AlignmentMethod::reward:
      return take_reward(r);
    case AlignmentMethod::classify:
      return take_classify(r);
    case AlignmentMethod::grpo:
    case AlignmentMethod::rloo:
    case AlignmentMethod::ppo:
      return take_rewards(r);
    case AlignmentMethod::gkd:
      return take_distillation(r);
    case AlignmentMethod::sft:
      return;
  }
}

}  // namespace nought

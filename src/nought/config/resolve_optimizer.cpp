// The optimizer: training.optim and its arguments, or DeepSpeed's section, and the groups of parameters.
#include <algorithm>

#include <fmt/ranges.h>

#include "nought/base/name_pattern.h"
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

/// What an optimizer is called by its user, whether Hugging Face's or DeepSpeed's name stood there.
enum class Kind { adam, sgd, adagrad, rmsprop, lion, lamb, muon, one_bit_adam, one_bit_lamb, zero_one_adam };

Kind kind_of(OptimizerName name) {
  switch (name) {
    case OptimizerName::sgd:
      return Kind::sgd;
    case OptimizerName::adagrad:
      return Kind::adagrad;
    case OptimizerName::rmsprop:
      return Kind::rmsprop;
    case OptimizerName::lion_32bit:
    case OptimizerName::lion_8bit:
    case OptimizerName::paged_lion_32bit:
    case OptimizerName::paged_lion_8bit:
      return Kind::lion;
    case OptimizerName::lamb:
      return Kind::lamb;
    case OptimizerName::muon:
      return Kind::muon;
    default:
      return Kind::adam;
  }
}

Kind kind_of(const std::string& deepspeed_type) {
  if (deepspeed_type == "SGD") return Kind::sgd;
  if (deepspeed_type == "Adagrad") return Kind::adagrad;
  if (deepspeed_type == "Lion") return Kind::lion;
  if (deepspeed_type == "Lamb") return Kind::lamb;
  if (deepspeed_type == "Muon") return Kind::muon;
  if (deepspeed_type == "OneBitAdam") return Kind::one_bit_adam;
  if (deepspeed_type == "OneBitLamb") return Kind::one_bit_lamb;
  if (deepspeed_type == "ZeroOneAdam") return Kind::zero_one_adam;
  return Kind::adam;
}

bool is_8bit(OptimizerName name) {
  switch (name) {
    case OptimizerName::adamw_8bit:
    case OptimizerName::adamw_bnb_8bit:
    case OptimizerName::lion_8bit:
    case OptimizerName::paged_adamw_8bit:
    case OptimizerName::paged_lion_8bit:
      return true;
    default:
      return false;
  }
}

/// What one of bitsandbytes' paged optimizers is here.
std::string_view unpaged(OptimizerName name) {
  if (kind_of(name) == Kind::lion) return is_8bit(name) ? "lion_8bit" : "lion_32bit";
  return is_8bit(name) ? "adamw_8bit" : "adamw_torch";
}

/// "momentum=0.9,nesterov=True", as transformers reads it.
OptimizerArgs parse_arguments(const std::string& text, const Origins& origins) {
  const std::string path = "training.optim_args";
  Json json = Json::object();
  for (const std::string& part : split(text, ',')) {
    if (part.find_first_not_of(' ') == std::string::npos) continue;
    const size_t equals = part.find('=');
    require<ConfigError>(equals != std::string::npos, "{}: expected key=value pairs between commas, found \"{}\"",
                         origins.place(path), part);
    const size_t begin = part.find_first_not_of(' ');
    const std::string key = part.substr(begin, part.find_last_not_of(' ', equals - 1) + 1 - begin);
    const std::string value = part.substr(equals + 1);
    const bool is_true = value == "True", is_false = value == "False";
    const Json parsed = is_true || is_false ? Json(is_true) : Json::parse(value, nullptr, /*allow_exceptions=*/false);
    json[key] = parsed.is_discarded() ? Json(value) : parsed;
  }
  return from_json<OptimizerArgs>(json, origins, path);
}

/// Which of the arguments an optimizer has.
std::vector<std::string_view> arguments_of(Kind kind, bool eight_bit) {
  std::vector<std::string_view> names;
  if (kind == Kind::sgd) names = {"momentum", "dampening", "nesterov"};
  if (kind == Kind::rmsprop) names = {"alpha"};
  if (kind == Kind::lamb) names = {"max_coeff", "min_coeff", "bias_correction"};
  if (kind == Kind::muon) names = {"momentum", "muon_lr", "adam_lr"};
  if (kind == Kind::one_bit_adam) names = {"freeze_step", "bias_correction"};
  if (kind == Kind::one_bit_lamb)
    names = {"freeze_step", "bias_correction", "max_coeff",  "min_coeff",
             "coeff_beta",  "factor_max",      "factor_min", "factor_threshold"};
  if (kind == Kind::zero_one_adam)
    names = {"var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper", "bias_correction"};
  if (eight_bit) names.push_back("block_size");
  return names;
}

/// ConfigError for an argument that is given and that the optimizer does not have.
struct ForeignArguments {
  const std::vector<std::string_view>& known;
  std::string place;

  template <class T>
  void operator()(const char* key, Setting<T>& setting, const char*) const {
    const bool harmless = std::string_view(key) == "bias_correction" && setting.value == T(1);
    require<ConfigError>(!setting.given || harmless || std::find(known.begin(), known.end(), key) != known.end(),
                         "{}: this optimizer has no parameter {}{}", place, key,
                         std::string_view(key) == "bias_correction" ? ": it always corrects its bias" : "");
  }
};

void check_pattern(const std::string& pattern, const std::string& place) {
  require<ConfigError>(!pattern.empty(), "{}: expected a pattern", place);
  try {
    NamePattern checked(pattern);
  } catch (const ConfigError& error) {
    fail<ConfigError>("{}: {}", place, error.what());
  }
}

void resolve_clipping(Resolver& r) {
  const auto clipping = r.merge("gradient_clipping", r.ds.gradient_clipping,
                                r.training("max_grad_norm", r.config.training.max_grad_norm));
  require_finite_at_least_zero(clipping);
  r.plan.gradient_clipping = r.note("gradient_clipping", clipping);
}

std::pair<double, double> resolve_betas(Resolver& r, double fallback2) {
  const TrainingConfig& t = r.config.training;
  const Auto<std::vector<double>>& betas = r.ds.optimizer.params.betas;
  require<ConfigError>(!betas.given() || betas.value.size() == 2, "{}: expected two numbers, found {}",
                       r.origins.place("deepspeed.optimizer.params.betas"), betas.value.size());
  const auto beta = [&](size_t i, const Candidate<double>& argument, double fallback) {
    const Auto<double> one{betas.given() ? betas.value[i] : 0.0, static_cast<Auto<double>::State>(betas.state)};
    const auto result = r.merge("optimizer.params.betas", one, argument,
                                r.ds.optimizer.type.given ? std::optional(fallback) : std::nullopt);
    require_fraction(result);
    return r.note(i == 0 ? "beta1" : "beta2", result);
  };
  const double beta1 = beta(0, r.training("adam_beta1", t.adam_beta1), 0.9);
  return {beta1, beta(1, r.training("adam_beta2", t.adam_beta2), fallback2)};
}

Method resolve_method(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  const bool in_deepspeed = r.ds.optimizer.type.given;
  const auto optim = r.training("optim", t.optim);
  const Kind kind = in_deepspeed ? kind_of(r.ds.optimizer.type.value) : kind_of(optim.value);
  require<ConfigError>(!in_deepspeed || !optim.given || (kind_of(optim.value) == kind && !is_8bit(optim.value)),
                       "{} = {} contradicts {} = {}; remove one of them", r.origins.place("deepspeed.optimizer.type"),
                       r.ds.optimizer.type.value, optim.place, enum_name(optim.value));
  const bool eight_bit = !in_deepspeed && is_8bit(optim.value);
  OptimizerArgs args = in_deepspeed ? r.ds.optimizer.params.args : parse_arguments(t.optim_args.value, r.origins);
  require<ConfigError>(!in_deepspeed || !t.optim_args.given, "{} has no effect beside {}; remove one of them",
                       r.origins.place("training.optim_args"), r.origins.place("deepspeed.optimizer"));
  const std::string prefix = in_deepspeed ? "deepspeed.optimizer.params" : "training.optim_args";
  ForeignArguments foreign{arguments_of(kind, eight_bit), r.origins.place(prefix)};
  args.visit(foreign);
  const auto argument = [&](const char* key, const Setting<double>& setting, double fallback) {
    Candidate<double> value = r.section_value(prefix + "." + key, setting);
    if (!setting.given) value.value = fallback;
    require_finite_at_least_zero(value);
    return r.note(key, value);
  };
  const auto epsilon = [&](double fallback) {
    const auto eps =
        r.merge("optimizer.params.eps", r.ds.optimizer.params.eps, r.training("adam_epsilon", t.adam_epsilon),
                in_deepspeed ? std::optional(fallback) : std::nullopt);
    require<ConfigError>(std::isfinite(eps.value) && eps.value > 0, "{}: expected a finite number > 0, got {}",
                         eps.place, eps.value);
    return r.note("eps", eps);
  };
  if (eight_bit) {
    require<ConfigError>(args.block_size.value > 0, "{}: expected block_size > 0, got {}", r.origins.place(prefix),
                         args.block_size.value);
    r.plan.layout.sharding.optimizer.state_block =
        r.note("block_size", r.section_value(prefix + ".block_size", args.block_size));
  }
  switch (kind) {
    case Kind::sgd: {
      SgdOptions sgd{.momentum = argument("momentum", args.momentum, 0),
                     .dampening = argument("dampening", args.dampening, 0),
                     .nesterov = args.nesterov.value};
      require<ConfigError>(!sgd.nesterov || (sgd.momentum > 0 && sgd.dampening == 0),
                           "{}: nesterov needs a momentum and no dampening", r.origins.place(prefix));
      return sgd;
    }
    case Kind::adagrad: {
      // transformers leaves torch's 1e-10 alone unless the user says something.
      const bool given =
          t.adam_epsilon.given || r.ds.optimizer.params.eps.given() || r.ds.optimizer.params.eps.automatic();
      return AdagradOptions{.eps = given ? epsilon(1e-10) : 1e-10};
    }
    case Kind::rmsprop: {
      const RmsPropOptions rmsprop{.alpha = argument("alpha", args.alpha, 0.99),
                                   .eps = t.adam_epsilon.given ? epsilon(1e-8) : 1e-8};
      require<ConfigError>(rmsprop.alpha < 1, "{}: expected alpha in [0, 1), got {}", r.origins.place(prefix),
                           rmsprop.alpha);
      return rmsprop;
    }
    case Kind::lion: {
      const auto [beta1, beta2] = resolve_betas(r, 0.99);
      return LionOptions{.beta1 = beta1, .beta2 = beta2};
    }
    case Kind::lamb: {
      const auto [beta1, beta2] = resolve_betas(r, 0.999);
      const LambOptions lamb{.beta1 = beta1,
                             .beta2 = beta2,
                             .eps = epsilon(1e-8),
                             .min_coeff = argument("min_coeff", args.min_coeff, 0.01),
                             .max_coeff = argument("max_coeff", args.max_coeff, 10),
                             .bias_correction = args.bias_correction.value};
      require<ConfigError>(lamb.min_coeff <= lamb.max_coeff, "{}: min_coeff {} is above max_coeff {}",
                           r.origins.place(prefix), lamb.min_coeff, lamb.max_coeff);
      return lamb;
    }
    case Kind::muon: {
      const double lr = r.plan.schedule.peak_lr;
      const auto [beta1, beta2] = resolve_betas(r, 0.999);
      const MuonOptions muon{.momentum = argument("momentum", args.momentum, 0.95),
                             .lr_scale = lr > 0 ? argument("muon_lr", args.muon_lr, lr) / lr : 1,
                             .others = {.beta1 = beta1, .beta2 = beta2, .eps = epsilon(1e-8)},
                             .others_lr_scale = lr > 0 ? argument("adam_lr", args.adam_lr, lr) / lr : 1};
      require<ConfigError>(muon.momentum < 1, "{}: expected momentum in [0, 1), got {}", r.origins.place(prefix),
                           muon.momentum);
      return muon;
    }
    case Kind::one_bit_adam:
    case Kind::one_bit_lamb:
    case Kind::zero_one_adam: {
      const std::pair<double, double> betas = resolve_betas(r, 0.999);
      return resolve_one_bit(r, args, betas, epsilon(1e-8));
    }
    case Kind::adam:
      break;
  }
  const auto [beta1, beta2] = resolve_betas(r, 0.999);
  const double eps = epsilon(1e-8);
  Candidate<bool> decoupled{true, false, "", "AdamW"};
  if (in_deepspeed && r.ds.optimizer.type.value == "Adam")
    decoupled = r.section_value("deepspeed.optimizer.params.adam_w_mode", r.ds.optimizer.params.adam_w_mode);
  require<ConfigError>(decoupled.value || !optim.given, "{} = false contradicts {}, which is AdamW; remove one",
                       decoupled.place, optim.place);
  return AdamOptions{
      .beta1 = beta1, .beta2 = beta2, .eps = eps, .decoupled_decay = r.note("decoupled_decay", decoupled)};
}

void resolve_freezing(Resolver& r) {
  const auto patterns = [&](const char* key, const Setting<std::vector<std::string>>& setting) {
    const std::string path = fmt::format("training.{}", key);
    for (const std::string& pattern : setting.value) check_pattern(pattern, r.origins.place(path));
    if (!setting.value.empty())
      r.plan.resolved.push_back(
          {key, fmt::format("{}", fmt::join(setting.value, ", ")), r.section_value(path, setting).reason});
    return setting.value;
  };
  r.plan.layout.freezing = {patterns("freeze", r.config.training.freeze),
                            patterns("trainable", r.config.training.trainable)};
  resolve_quantized_frozen(r);
}

void resolve_parameter_groups(Resolver& r) {
  size_t index = 0;
  for (const ParameterGroupConfig& group : r.config.training.parameter_groups.value) {
    const std::string path = fmt::format("training.parameter_groups[{}]", index++), place = r.origins.place(path);
    check_pattern(group.pattern, place);
    require_finite_at_least_zero({group.lr_scale.value, true, place + ".lr_scale", ""});
    require_finite_at_least_zero({group.weight_decay.value, true, place + ".weight_decay", ""});
    r.plan.layout.sharding.optimizer.groups.push_back(
        {.pattern = group.pattern,
         .lr_scale = group.lr_scale.value,
         .weight_decay = group.weight_decay.given ? std::optional(group.weight_decay.value) : std::nullopt});
    r.plan.resolved.push_back(
        {path,
         fmt::format("{}: lr x {}{}", group.pattern, group.lr_scale.value,
                     group.weight_decay.given ? fmt::format(", weight_decay {}", group.weight_decay.value) : ""),
         "training.parameter_groups"});
  }
}

}  // namespace

void resolve_optimizer(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  const bool in_deepspeed = r.ds.optimizer.type.given;
  auto own_lr = r.training("learning_rate", t.learning_rate);
  const AlignmentMethod method = r.plan.alignment.method;
  if (r.plan.alignment.of_answers() && method != AlignmentMethod::classify && !own_lr.given) {
    own_lr.value = method == AlignmentMethod::reward ? 1e-4
                   : method == AlignmentMethod::gkd  ? 2e-5
                   : method == AlignmentMethod::ppo  ? 5e-5
                                                     : 1e-6;
    own_lr.reason = fmt::format("TRL's default for {}", enum_name(method));
  }
  const auto lr = r.merge("optimizer.params.lr", r.ds.optimizer.params.lr, own_lr,
                          in_deepspeed ? std::optional(1e-3) : std::nullopt);
  require_finite_at_least_zero(lr);
  r.plan.schedule.peak_lr = r.note("learning_rate", lr);

  const auto optim = r.training("optim", t.optim);
  const std::string name = in_deepspeed ? r.ds.optimizer.type.value : std::string(enum_name(optim.value));
  const std::string why =
      name.starts_with("paged_")
          ? fmt::format("{}; no states are paged: it is {} here, and offload_optimizer moves states", optim.reason,
                        unpaged(optim.value))
          : optim.reason;
  r.plan.resolved.push_back({"optimizer", name, in_deepspeed ? "deepspeed: optimizer.type" : why});
  r.plan.layout.sharding.optimizer.method = resolve_method(r);

  const auto decay =
      r.merge("optimizer.params.weight_decay", r.ds.optimizer.params.weight_decay,
              r.training("weight_decay", t.weight_decay), in_deepspeed ? std::optional(0.0) : std::nullopt);
  require_finite_at_least_zero(decay);
  r.plan.layout.sharding.optimizer.weight_decay = r.note("weight_decay", decay);
  r.plan.layout.sharding.optimizer.decay_all =
      r.note("weight_decay_all", r.training("weight_decay_all", t.weight_decay_all));
  resolve_parameter_groups(r);
  resolve_freezing(r);
  resolve_clipping(r);
}

}  // namespace nought

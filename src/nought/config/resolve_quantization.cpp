// The section quantization_config: a frozen model whose weights are kept as codes beside an adapter (QLoRA).
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

constexpr const char* kSection = "quantization_config";

/// The codes that the section asks for; none if it asks for none.
std::optional<WeightCodes> codes_of(const Resolver& r) {
  const QuantizationArgs& q = r.config.quantization_config;
  const auto at = [&](const char* key) { return r.origins.place(join_path(kSection, key)); };
  require<ConfigError>(q.quant_method.value == "bitsandbytes",
                       "{}: \"{}\" is no way to quantize a model that is trained with an adapter; bitsandbytes is: a "
                       "model that is stored in other codes is decoded when it is read, without this section",
                       at("quant_method"), q.quant_method.value);
  require<ConfigError>(!q.load_in_4bit.value || !q.load_in_8bit.value, "{} and {} are both true: choose one",
                       at("load_in_4bit"), at("load_in_8bit"));
  if (q.load_in_8bit.value) return WeightCodes{};
  if (!q.load_in_4bit.value) return std::nullopt;
  return WeightCodes{q.bnb_4bit_quant_type.value, q.bnb_4bit_use_double_quant.value};
}

/// Products run in the dtype of the run.
void check_compute_dtype(const Resolver& r) {
  const Setting<std::string>& asked = r.config.quantization_config.bnb_4bit_compute_dtype;
  if (!asked.given) return;
  const std::string place = r.origins.place(join_path(kSection, "bnb_4bit_compute_dtype"));
  const std::string& text = asked.value;
  const std::string name = text.starts_with("torch.") ? text.substr(6) : text;
  const std::pair<std::string_view, DType> known[] = {
      {"float32", DType::f32}, {"bfloat16", DType::bf16}, {"float16", DType::f16}};
  for (const auto& [each, dtype] : known) {
    if (name != each) continue;
    return require<ConfigError>(dtype == r.plan.layout.sharding.dtype,
                                "{}: products of codes run in the dtype of the run, {}, and not in {}: set "
                                "training.bf16 or fp16, or leave it out",
                                place, nought::name_of(r.plan.layout.sharding.dtype), name);
  }
  fail<ConfigError>("{}: expected float32, bfloat16 or float16, found \"{}\"", place, text);
}

/// ConfigError for what codes of 4 bits do not go with.
void check_four_bits(const Resolver& r) {
  const std::string place = r.origins.place(join_path(kSection, "load_in_4bit"));
  if (!r.plan.adapter) return;
  require<ConfigError>(!r.plan.adapter->dora,
                       "{} does not go with {}.use_dora yet: its norms are those of dense weights: leave one out",
                       place, r.plan.adapter_place);
  require<ConfigError>(!takes_of_the_base(r.plan.adapter->start),
                       "{} does not go with {}.init_lora_weights, which takes a part of the model away: codes have no "
                       "room for the rest: use true, gaussian or orthogonal",
                       place, r.plan.adapter_place);
}

}  // namespace

void resolve_quantization(Resolver& r) {
  const std::optional<WeightCodes> codes = codes_of(r);
  if (!codes) return;
  const bool four = is_four_bits(codes->kind);
  const std::string key = join_path(kSection, four ? "load_in_4bit" : "load_in_8bit"), place = r.origins.place(key);
  require<ConfigError>(
      r.plan.adapts(),
      "{}: codes are not trained; with a section \"adapter\" the model stays frozen and an adapter is: "
      "add one, or remove the key",
      place);
  require<ConfigError>(!r.plan.layout.freezing.codes,
                       "{} and deepspeed.zero_optimization.zero_quantized_nontrainable_weights both say how the frozen "
                       "model is kept: leave one out",
                       place);
  check_compute_dtype(r);
  if (four) check_four_bits(r);
  r.plan.layout.freezing.codes = codes;
  const std::string value =
      four ? fmt::format("{}{}", nought::name_of(codes->kind), codes->double_quantized ? ", double quantization" : "")
           : "q8_0";
  r.plan.resolved.push_back(
      {kSection, value,
       key + (four ? ": the matrices of the frozen model's linear layers take 4 bits, and " +
                         std::string(codes->double_quantized ? "0.127" : "0.5") + " for their scales"
                   : ": matrices and tables of the frozen model are kept in blocks of 8-bit codes")});
}

}  // namespace nought

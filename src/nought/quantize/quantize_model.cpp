#include "nought/quantize/quantize_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/io/atomic_file.h"
#include "nought/io/files.h"
#include "nought/models/names.h"
#include "nought/quantize/block_files.h"
#include "nought/quantize/block_scaler.h"
#include "nought/quantize/chosen_matrices.h"
#include "nought/quantize/gptq.h"
#include "nought/quantize/input_scales.h"
#include "nought/quantize/loaded_units.h"
#include "nought/quantize/workspace_copy.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

/// Calls f(the element of a stack of matrices [in, out], that of the matrices transposed, one below the other).
template <class F>
void for_each_of_stack(const Shape& stack, const F& f) {
  int64_t from = 0;
  for (int64_t which = 0; which < stack[0]; ++which)
    for (int64_t in = 0; in < stack[1]; ++in)
      for (int64_t out = 0; out < stack[2]; ++out) f(from++, (which * stack[2] + out) * stack[1] + in);
}

/// [matrices * out, in]: rows of outputs, as codes have them.
Tensor rows_of_stack(const Context& context, const Tensor& stack) {
  const Tensor rows = context.empty({stack.dim(0) * stack.dim(2), stack.dim(1)}, DType::f32, Category::workspace);
  for_each_of_stack(stack.shape(),
                    [&](int64_t from, int64_t to) { rows.data<float>()[to] = stack.data<float>()[from]; });
  return rows;
}

void put_rows_of_stack(const Tensor& rows, const Tensor& stack) {
  for_each_of_stack(stack.shape(),
                    [&](int64_t to, int64_t from) { stack.data<float>()[to] = rows.data<float>()[from]; });
}

/// All that codes depend on, by the options that say so.
Json made_of(const ModelSource& source, const QuantizeOptions& options) {
  std::vector<int32_t> tokens;
  for (const TokenRow& row : options.calibration)
    for (const auto* half : {&row.inputs, &row.targets}) tokens.insert(tokens.end(), half->begin(), half->end());
  const MatrixRule& rule = options.rule;
  return {{"SOURCE", source.weights_hash()},
          {"--format", options.format},
          {"--method", name_of(options.method)},
          {"--bits", rule.grid.bits},
          {"--sym or --asym", rule.grid.symmetric},
          {"--group-size", rule.group_size},
          {"--desc-act", rule.act_order},
          {"--damping", rule.damping},
          {"--smoothing-strength", options.smoothing},
          {"--skip", options.skip},
          {"--calibration, --samples or --seq-length", xxh3_of(std::as_bytes(std::span(tokens)))}};
}

/// What the report says of blocks, for a command that goes on behind them.
Json as_json(const std::map<std::string, KindReport>& kinds, int64_t unseen, int64_t undone) {
  Json json{{"kinds", Json::object()}, {"unseen", unseen}, {"undone", undone}};
  for (const auto& [name, kind] : kinds) json["kinds"][name] = {kind.matrices, kind.elements, kind.error};
  return json;
}

std::tuple<std::map<std::string, KindReport>, int64_t, int64_t> progress_of(const Json& json) {
  std::map<std::string, KindReport> kinds;
  for (const auto& [name, kind] : json.at("kinds").items()) kinds[name] = {kind.at(0), kind.at(1), kind.at(2)};
  return {kinds, json.at("unseen"), json.at("undone")};
}

ChosenMatrices chosen(const ModelSource& source, const QuantizeOptions& options, const FolderFormat& format) {
  ChosenMatrices matrices(source, options.skip, options.rule, format, options.format);
  if (options.method != RoundingMethod::rtn) matrices.require_no_stacks(source);
  return matrices;
}

class ModelQuantizer {
 public:
  ModelQuantizer(const ModelSource& source, const fs::path& folder, const QuantizeOptions& options,
                 const Context& context)
      : source_(source),
        folder_(folder),
        options_(options),
        context_(context),
        format_(make_folder_format(options.format, source.config().family)),
        choice_(chosen(source, options, *format_)),
        decoder_(source.config()),
        units_(context, decoder_, source.weights()),
        blocks_(folder, made_of(source, options), options.anew) {}

  QuantizeReport run(const std::function<void(int64_t, int64_t)>& said) {
    const DecoderSections sections(decoder_);
    CalibrationRows rows(decoder_, context_, options_.calibration);
    rows.pass(sections.embedding, context_);
    const auto blocks = std::ssize(sections.blocks);
    recall(rows, blocks);
    for (block_ = blocks_.done(); block_ < blocks; ++block_) {
      said(block_, blocks);
      quantize(sections.blocks[static_cast<size_t>(block_)], rows, block_ + 1 < blocks);
    }
    write_folder(sections);
    finish();
    return report_;
  }

 private:
  /// What is written of a Unit.
  std::vector<TensorSpec> specs_of(const Unit& unit) const {
    std::vector<TensorSpec> specs;
    for (const Parameter& parameter : unit.parameters()) {
      const Shape& shape = parameter.placement.global;
      if (choice_.becomes_codes(parameter))
        std::ranges::copy(format_->specs(module_of(parameter.name), shape, options_.rule), std::back_inserter(specs));
      else
        specs.push_back({parameter.name, source_.dtype_of(parameter), shape});
    }
    return specs;
  }

  /// Goes on behind the blocks that an earlier command has made.
  void recall(CalibrationRows& rows, int64_t blocks) {
    if (blocks_.done() == 0) return;
    std::tie(report_.kinds, unseen_, undone_) = progress_of(blocks_.remembered());
    if (goes_by_inputs() && blocks_.done() < blocks) rows.enter(blocks_.rows(*context_.memory));
  }

  /// All weights: the blocks' from their files, the others from the source.
  void write_folder(const DecoderSections& sections) {
    std::vector<TensorSpec> all;
    for (const auto& unit : source_.model().units()) std::ranges::copy(specs_of(*unit), std::back_inserter(all));
    HfFolderWriter writer(folder_, all, options_.max_shard_bytes);
    std::set<std::string> of_blocks;
    for (const Section& block : sections.blocks)
      for (const Parameter& parameter : block.unit->parameters()) of_blocks.insert(parameter.name);
    copy_weights(source_, writer, *context_.memory,
                 [&](const Parameter& parameter) { return !of_blocks.contains(parameter.name); });
    blocks_.for_each(*context_.memory, [&](const std::string& name, const Tensor& values) {
      writer.write(name, Interval{0, values.numel()}, values);
    });
    writer.finish();
    report_.files = writer.num_shards();
    report_.tensors = std::ssize(all), report_.dense_bytes = dense_bytes(source_);
    for (const TensorSpec& spec : all) report_.bytes += spec.bytes();
    count_codes();
  }

  void count_codes() {
    for (const auto& unit : source_.model().units())
      for (const Parameter& parameter : unit->parameters()) {
        if (!choice_.becomes_codes(parameter)) continue;
        const Shape& shape = parameter.placement.global;
        report_.codes_elements += shape.numel();
        for (const TensorSpec& spec : format_->specs(module_of(parameter.name), shape, options_.rule))
          report_.codes_bytes += spec.bytes();
      }
  }

  /// Makes codes of a block's matrices, and takes the rows through it if somebody wants them behind it.
  void quantize(const Section& section, CalibrationRows& rows, bool wanted) {
    const Unit& unit = *section.unit;
    writer_.emplace(blocks_.next(specs_of(unit)));
    units_.hold(unit);
    ProductInputs inputs(context_, unit, [&](size_t segment) { return units_.values(unit, segment); });
    std::set<std::string> done;
    if (goes_by_inputs()) {
      rows.result(section, inputs.watched(), 0);
      done = options_.method == RoundingMethod::gptq ? quantize_forward(section, rows, inputs)
                                                     : quantize_backward(section, rows, inputs);
    }
    std::set<std::string> others;
    for (const Parameter& parameter : unit.parameters())
      if (choice_.becomes_codes(parameter) && !done.contains(kind_of(parameter.name)))
        others.insert(kind_of(parameter.name));
    quantize_kinds(unit, others, nullptr);
    write_dense(unit);
    const bool kept = wanted && goes_by_inputs();
    if (kept) rows.pass(section, context_);
    units_.let_go(unit);
    blocks_.add(*writer_, kept ? rows.hidden() : std::vector<Tensor>(), as_json(report_.kinds, unseen_, undone_));
  }

  bool goes_by_inputs() const { return options_.method != RoundingMethod::rtn; }

  /// From the first product to the last, so that each sees inputs that those before it have made of codes. Returns the
  /// kinds that are done.
  std::set<std::string> quantize_forward(const Section& section, CalibrationRows& rows, ProductInputs& inputs) {
    const Unit& unit = *section.unit;
    std::set<std::string> done;
    const std::vector<ProductInputs::Product> seen = inputs.seen();
    for (const ProductInputs::Product& product : seen) {
      const std::set<std::string> kinds = kinds_of(unit, product);
      if (kinds.empty() || done.contains(*kinds.begin())) continue;
      inputs.want([&](const ProductInputs::Product& each) { return kinds_of(unit, each) == kinds; });
      rows.look(section, inputs.watched());
      quantize_kinds(unit, kinds, &inputs);
      done.insert(kinds.begin(), kinds.end());
    }
    return done;
  }

  /// From the last product to the first: what divides a product's inputs is not rounded before it.
  std::set<std::string> quantize_backward(const Section& section, CalibrationRows& rows, ProductInputs& inputs) {
    const Unit& unit = *section.unit;
    const auto becomes_codes = [&](const Parameter& parameter) { return choice_.becomes_codes(parameter); };
    const std::vector<Fold> folds = folds_of(source_.config(), block_, unit, inputs, becomes_codes);
    BlockScaler scaler(source_, context_, units_, section, rows, scales());
    std::set<std::string> done;
    const std::vector<ProductInputs::Product> seen = inputs.seen();
    for (auto product = seen.rbegin(); product != seen.rend(); ++product) {
      std::set<std::string> kinds = kinds_of(unit, *product);
      if (kinds.empty() || done.contains(*kinds.begin())) continue;
      const auto here = [&](const Fold& fold) {
        return kinds.contains(kind_of(unit.parameters()[fold.matrices.front()].name));
      };
      for (const Fold& fold : folds)  // attention and an MLP beside it may have one norm
        if (here(fold) && fold.by_norm)
          for (const size_t matrix : fold.matrices) kinds.insert(kind_of(unit.parameters()[matrix].name));
      inputs.want([&](const ProductInputs::Product& each) {
        const std::set<std::string> of_each = kinds_of(unit, each);
        return !of_each.empty() && kinds.contains(*of_each.begin());
      });
      rows.look(section, inputs.watched());
      for (const Fold& fold : folds)
        if (here(fold) && scales_by(fold) && !scaler.scale(fold, inputs)) ++undone_;
      quantize_kinds(unit, kinds, &inputs);
      done.insert(kinds.begin(), kinds.end());
    }
    return done;
  }

  /// SmoothQuant divides norms alone.
  bool scales_by(const Fold& fold) const { return options_.method == RoundingMethod::awq || fold.by_norm; }
  BlockScaler::Scales scales() const {
    if (options_.method == RoundingMethod::smoothquant)
      return [this](std::span<const Tensor> weights, const InputMoments& inputs, std::span<const int64_t> source) {
        return smoothing_scales(weights, inputs, source, options_.smoothing);
      };
    return [this](std::span<const Tensor> weights, const InputMoments& inputs, std::span<const int64_t> source) {
      return activation_aware_scales(context_, weights, inputs, source, options_.rule);
    };
  }

  /// Queries and keys meet in scores, where a clamp of one side is not made up for.
  bool is_scored(const Parameter& parameter) const {
    std::vector<std::string> names = WeightNames::of(source_.config()).layer(block_).qkv;
    if (names.size() > 1) names.pop_back();  // v
    return std::find(names.begin(), names.end(), module_of(parameter.name)) != names.end();
  }

  /// What of a block does not become codes, as it is now.
  void write_dense(const Unit& unit) {
    for (const Parameter& parameter : unit.parameters())
      if (!choice_.becomes_codes(parameter)) writer_->write(parameter.name, units_.matrix_of(unit, parameter));
  }

  /// The kinds of the parameters of a product that become codes.
  std::set<std::string> kinds_of(const Unit& unit, const ProductInputs::Product& product) const {
    std::set<std::string> kinds;
    for (size_t i = product.first; i <= product.last; ++i)
      if (choice_.becomes_codes(unit.parameters()[i])) kinds.insert(kind_of(unit.parameters()[i].name));
    return kinds;
  }

  void quantize_kinds(const Unit& unit, const std::set<std::string>& kinds, const ProductInputs* inputs) {
    const InputMoments* factored = nullptr;  // whose factor is at hand: neighbours are multiplied by the same inputs
    std::optional<InverseFactor> factor;
    for (size_t i = 0; i < unit.parameters().size(); ++i) {
      const Parameter& parameter = unit.parameters()[i];
      if (!choice_.becomes_codes(parameter) || !kinds.contains(kind_of(parameter.name))) continue;
      const InputMoments* moments = inputs != nullptr ? inputs->of(i) : nullptr;
      if (goes_by_inputs() && moments == nullptr) ++unseen_;
      if (moments != nullptr && moments != factored) {
        require_finite(*moments, module_of(parameter.name));
        if (options_.method == RoundingMethod::gptq)
          factor.emplace(gptq_factor(context_, moments->sums, options_.rule));
        factored = moments;
      }
      const Tensor stored = units_.matrix_of(unit, parameter);
      const Tensor weights = stored.rank() == 3 ? rows_of_stack(context_, stored) : stored;
      require<Error>(is_finite(weights), "{} has a value that is not finite", parameter.name);
      const Tensor exact = workspace_copy(context_, weights);
      if (options_.method == RoundingMethod::awq && moments != nullptr && !is_scored(parameter))
        clip_groups(context_, weights, *moments, options_.rule);
      const QuantizedMatrix matrix = moments != nullptr && factor
                                         ? quantize_gptq(context_, weights, *factor, options_.rule)
                                         : round_to_nearest(weights, options_.rule);
      report(parameter, relative_error(context_, exact, weights, moments != nullptr ? moments->sums : Tensor()));
      if (stored.rank() == 3) put_rows_of_stack(weights, stored);
      format_->write(module_of(parameter.name), matrix, *writer_, *context_.memory);
    }
  }

  static bool is_finite(const Tensor& tensor) {
    const std::span<const float> all = tensor.span<float>();
    return std::all_of(all.begin(), all.end(), [](float x) { return std::isfinite(x); });
  }

  void report(const Parameter& parameter, double error) {
    KindReport& kind = report_.kinds[kind_of(parameter.name)];
    ++kind.matrices, kind.elements += parameter.placement.global.numel();
    kind.error += error;
  }

  void finish() {
    export_companions_of(source_, source_.dtype(), folder_);
    OrderedJson config = OrderedJson::parse(read_bytes(folder_ / "config.json"));
    config["quantization_config"] = format_->config(options_.rule, choice_.modules());
    write_text_atomically(folder_ / "config.json", config.dump(2) + "\n");
    blocks_.remove();
    if (!choice_.unfit().empty())
      report_.notes.push_back(fmt::format("{} matrices stay as they are, their sizes do not fit the format: {}{}",
                                          choice_.unfit().size(), choice_.unfit().front(),
                                          choice_.unfit().size() > 1 ? " ..." : ""));
    if (unseen_ > 0)
      report_.notes.push_back(fmt::format(
          "{} matrices were rounded to the nearest: no token of the calibration text came to them", unseen_));
    if (undone_ > 0)
      report_.notes.push_back(fmt::format(
          "the inputs of {} matrices were not scaled: something between would have made another model of it", undone_));
    if (const CarriedTensors* carried = source_.stored() ? source_.stored()->carried() : nullptr)
      report_.notes.push_back(carried->describe() + " are left out: the folder has the text model alone");
  }

  const ModelSource& source_;
  fs::path folder_;
  const QuantizeOptions& options_;
  Context context_;
  QuantizeReport report_;
  std::unique_ptr<FolderFormat> format_;
  ChosenMatrices choice_;
  Decoder decoder_;
  LoadedUnits units_;
  BlockFiles blocks_;
  std::optional<SafetensorsWriter> writer_;  // of the block that is at work
  int64_t block_ = 0;                        // that is at work
  int64_t unseen_ = 0, undone_ = 0;
};

}  // namespace

std::string_view name_of(RoundingMethod method) {
  constexpr std::string_view kNames[] = {"rtn", "gptq", "awq", "smoothquant"};
  return kNames[static_cast<size_t>(method)];
}

int64_t dense_bytes(const ModelSource& source) {
  int64_t bytes = 0;
  for (const auto& unit : source.model().units())
    for (const Parameter& parameter : unit->parameters())
      bytes += parameter.placement.global.numel() * size_of(source.dtype_of(parameter));
  return bytes;
}

void require_has_place(std::string_view format, RoundingMethod method, const MatrixRule& rule) {
  make_folder_format(format)->check(rule);
  const bool scales = method == RoundingMethod::awq || method == RoundingMethod::smoothquant;
  require<ConfigError>(!scales || rule.grid.codes == CodeTable::natural,
                       "--method {} scales columns for whole numbers; --format {} has floats: gptq or rtn",
                       name_of(method), format);
}

QuantizeReport quantize_model(const ModelSource& source, const fs::path& folder, const QuantizeOptions& options,
                              const Context& context, const std::function<void(int64_t block, int64_t blocks)>& said) {
  source.config().require_language_model(source.folder().string());
  require<ConfigError>(source.config().weight_layout == WeightLayout::out_in,
                       "{} models are not quantized: their matrices are [in, out]", source.config().family);
  require<ConfigError>(source.adapters().empty(), "{}: merge the adapter first: nought convert --merge",
                       source.folder().string());
  require<ConfigError>(options.method == RoundingMethod::rtn || !options.calibration.empty(),
                       "--method {} goes by the inputs of a calibration text: --calibration FILE",
                       name_of(options.method));
  require_has_place(options.format, options.method, options.rule);
  require<ConfigError>(options.max_shard_bytes > 0, "max_shard_bytes must be positive, got {}",
                       options.max_shard_bytes);
  return ModelQuantizer(source, folder, options, context).run(said);
}

}  // namespace nought

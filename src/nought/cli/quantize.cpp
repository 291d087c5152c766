// nought quantize: writes a model in few bits, and measures what that costs.
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/evaluation.h"
#include "nought/cli/generation.h"
#include "nought/cli/written_model.h"
#include "nought/models/gguf_metadata.h"
#include "nought/quantize/compare_models.h"
#include "nought/quantize/quantize_model.h"
#include "nought/weights/four_bit_folder.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

struct QuantizeFlags {
  std::string source, target, format, method, type, max_shard_size;
  std::vector<std::string> skip, calibration, evaluation;
  std::string tokenizer;
  std::optional<int64_t> bits, group_size;
  int64_t samples = 128;
  std::optional<int64_t> seq_length;
  std::optional<double> damping, smoothing;
  bool symmetric = false, asymmetric = false, act_order = false, force = false;

  /// The format is one of folders whose codes are made here; else `type` says what convert makes.
  bool in_groups() const { return format != "gguf" && format != "bitsandbytes"; }
};

std::vector<std::string> all_formats() {
  std::vector<std::string> names = folder_format_names();
  names.emplace_back("bitsandbytes");
  names.emplace_back("gguf");
  return names;
}

RoundingMethod method_of(const QuantizeFlags& flags) {
  const std::string method = flags.method.empty() ? (flags.calibration.empty() ? "rtn" : "gptq") : flags.method;
  for (const RoundingMethod each :
       {RoundingMethod::gptq, RoundingMethod::awq, RoundingMethod::smoothquant, RoundingMethod::rtn})
    if (name_of(each) == method) return each;
  fail<ConfigError>("--method must be gptq, awq, smoothquant or rtn, got {}", method);
}

MatrixRule rule_of(const QuantizeFlags& flags) {
  MatrixRule rule = make_folder_format(flags.format)->usual();
  const int64_t bits = flags.bits.value_or(rule.grid.bits);
  require<ConfigError>(2 <= bits && bits <= 8, "--bits is {}, expected 2 to 8", bits);
  const int64_t group_size = flags.group_size.value_or(rule.group_size);
  require<ConfigError>(group_size == -1 || group_size > 0,
                       "--group-size is {}, expected a number of columns, or -1 for whole rows", group_size);
  const double damping = flags.damping.value_or(rule.damping);
  require<ConfigError>(damping > 0 && damping < 1, "--damping is {}, expected a number between 0 and 1", damping);
  rule.grid.bits = static_cast<int>(bits);
  if (flags.symmetric || flags.asymmetric) rule.grid.symmetric = flags.symmetric;
  rule.group_size = group_size, rule.act_order = flags.act_order, rule.damping = damping;
  return rule;
}

/// An option of one format says nothing to the other.
void check_flags(const QuantizeFlags& flags) {
  const std::vector<std::string> formats = all_formats();
  require<ConfigError>(std::find(formats.begin(), formats.end(), flags.format) != formats.end(),
                       "--format must be one of {}; got {}", fmt::join(formats, ", "), flags.format);
  require<ConfigError>(!flags.symmetric || !flags.asymmetric, "--sym and --asym: give one of them");
  require<ConfigError>(flags.samples > 0, "--samples is {}, expected a number > 0", flags.samples);
  require<ConfigError>(!flags.seq_length || *flags.seq_length > 1, "--seq-length is {}, expected 2 tokens or more",
                       flags.seq_length.value_or(0));
  const RoundingMethod method = method_of(flags);
  if (flags.in_groups()) {
    const MatrixRule rule = rule_of(flags);
    require<ConfigError>(flags.type.empty(), "--type {} is for --format gguf or bitsandbytes; {} has --bits",
                         flags.type, flags.format);
    const bool scales = method == RoundingMethod::awq || method == RoundingMethod::smoothquant;
    require<ConfigError>(!scales || (!flags.act_order && !flags.damping), "--method {} has no {}: it is GPTQ's",
                         name_of(method), flags.act_order ? "--desc-act" : "--damping");
    require<ConfigError>(method == RoundingMethod::smoothquant || !flags.smoothing,
                         "--method {} has no --smoothing-strength: it is SmoothQuant's", name_of(method));
    require<ConfigError>(flags.smoothing.value_or(0) >= 0 && flags.smoothing.value_or(0) <= 1,
                         "--smoothing-strength is {}, expected a number from 0 to 1", flags.smoothing.value_or(0));
    require<ConfigError>(
        method != RoundingMethod::rtn || (flags.calibration.empty() && !flags.act_order && !flags.damping),
        "--method rtn looks at no inputs: leave out {}",
        !flags.calibration.empty() ? "--calibration"
        : flags.act_order          ? "--desc-act"
                                   : "--damping");
    require_has_place(flags.format, method, rule);
    return;
  }
  require<ConfigError>(method == RoundingMethod::rtn, "--format {}: --method {} is for {}; leave out --calibration",
                       flags.format, name_of(method), fmt::join(folder_format_names(), ", "));
  require<ConfigError>(!flags.bits && !flags.group_size && !flags.symmetric && !flags.asymmetric && !flags.act_order &&
                           !flags.damping && !flags.smoothing && flags.skip.empty(),
                       "--format {} has --type in place of --bits, --group-size, --sym, --asym, --desc-act, --damping, "
                       "--smoothing-strength and --skip",
                       flags.format);
  require<ConfigError>(flags.format == "bitsandbytes" || flags.max_shard_size.empty(),
                       "--max-shard-size is for folders; --format gguf writes one file");
  if (flags.format == "bitsandbytes") {
    require<ConfigError>(flags.type == "nf4" || flags.type == "fp4",
                         "--format bitsandbytes: --type must be nf4 or fp4, got \"{}\"", flags.type);
  } else {
    require<ConfigError>(find_gguf_mixture(lower_case(flags.type)) != nullptr,
                         "--format gguf: --type \"{}\" is none of llama.cpp's that are written, such as q4_k_m; "
                         "`nought convert --help` lists them",
                         flags.type);
  }
}

/// Samples of the data, evenly spread over it; all if there are no more than that.
std::vector<TokenRow> rows_of(const TokenDataset& data, int64_t most) {
  std::vector<TokenRow> rows;
  const int64_t samples = data.num_samples(), count = std::min(most, samples);
  for (int64_t i = 0; i < count; ++i) {
    TokenRow row;
    row.inputs.resize(static_cast<size_t>(data.seq_length()));
    row.targets.resize(row.inputs.size());
    data.sample(i * samples / count, row.inputs, row.targets);
    rows.push_back(std::move(row));
  }
  return rows;
}

/// The rows of some files, read as `nought eval` reads them.
std::vector<TokenRow> read_rows(const QuantizeFlags& flags, const fs::path& model, const std::string& option,
                                const std::vector<std::string>& files, int64_t most) {
  if (files.empty()) return {};
  EvalOptions options;
  options.model_dir = model.string(), options.tokenizer = flags.tokenizer, options.files = files;
  options.model_found = true;
  options.seq_length = flags.seq_length.value_or(512);
  const RunPlan plan = options.plan(1);
  for (const std::string& note : validate_eval(options, 1)) fmt::print(stderr, "note: {}\n", note);
  const auto tokenizer = tokenizer_of(plan.data);
  std::vector<TokenRow> rows = rows_of(open_data(plan, *tokenizer).training, most);
  require<ConfigError>(!rows.empty(),
                       "{} {}: the text has fewer than the {} tokens of one sample: give more, or a "
                       "smaller --seq-length",
                       option, fmt::join(files, " "), plan.layout.seq_length + 1);
  return rows;
}

void print_kinds(const QuantizeReport& report) {
  fmt::print("{:<32} {:>8} {:>12}  {}\n", "module", "matrices", "weights", "error of outputs");
  for (const auto& [kind, of] : report.kinds)
    fmt::print("{:<32} {:>8} {:>12}  {:.3f}%\n", kind, of.matrices, of.elements,
               100 * std::sqrt(of.error / static_cast<double>(of.matrices)));
}

void print_comparison(const ModelComparison& comparison) {
  fmt::print(
      "perplexity {:.4f}, was {:.4f} ({:+.2f}%); KL divergence {:.5f} nats; the same first choice for {:.1f}% "
      "of {} tokens\n",
      comparison.other_perplexity(), comparison.perplexity(),
      100 * (comparison.other_perplexity() / comparison.perplexity() - 1), comparison.divergence,
      100 * comparison.same_top, comparison.targets);
}

int64_t max_shard_bytes(const QuantizeFlags& flags) {
  return flags.max_shard_size.empty() ? HfFolderWriter::kDefaultShardBytes
                                      : parse_bytes(flags.max_shard_size, "--max-shard-size");
}

QuantizeReport write_groups(const QuantizeFlags& flags, const ModelSource& source, const Context& context) {
  QuantizeOptions options{
      .format = flags.format,
      .method = method_of(flags),
      .rule = rule_of(flags),
      .skip = flags.skip,
      .calibration = read_rows(flags, source.folder(), "--calibration", flags.calibration, flags.samples)};
  options.smoothing = flags.smoothing.value_or(options.smoothing);
  options.max_shard_bytes = max_shard_bytes(flags), options.anew = flags.force;
  if (!options.calibration.empty())
    fmt::print(stderr, "calibration: {} samples of {} tokens\n", options.calibration.size(),
               options.calibration.front().inputs.size());
  const auto begin = std::chrono::steady_clock::now();
  bool first = true;
  return quantize_model(source, flags.target, options, context, [&](int64_t block, int64_t blocks) {
    if (std::exchange(first, false) && block > 0)
      fmt::print(stderr, "goes on: {} of {} blocks were made before\n", block, blocks);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    fmt::print(stderr, "block {} of {}, {:.0f} s\n", block + 1, blocks, seconds);
  });
}

QuantizeReport write(const QuantizeFlags& flags, const ModelSource& source, const Context& context) {
  if (flags.in_groups()) return write_groups(flags, source, context);
  const ConvertReport written =
      flags.format == "gguf"
          ? convert_to_gguf(source, flags.target, *find_gguf_mixture(lower_case(flags.type)), *context.memory)
          : convert_to_four_bits(source, flags.target, flags.type == "nf4" ? CodeKind::nf4 : CodeKind::fp4,
                                 {.max_shard_bytes = max_shard_bytes(flags)}, *context.memory);
  QuantizeReport report{.tensors = written.tensors, .bytes = written.bytes, .files = written.files};
  report.notes = written.notes;
  report.dense_bytes = dense_bytes(source);
  return report;
}

int run_quantize(const QuantizeFlags& flags) {
  const auto begin = std::chrono::steady_clock::now();
  check_flags(flags);
  const FoundModel found = find_model(flags.source);
  const ModelSource source(found);
  require_free_target(flags.target, flags.format == "gguf", flags.force, source.folder());
  say_choice(source.choice());
  const Context context = Context::cpu();
  const std::vector<TokenRow> rows =
      read_rows(flags, source.folder(), "--eval", flags.evaluation, std::numeric_limits<int64_t>::max());
  const QuantizeReport report = write(flags, source, context);
  for (const std::string& note : report.notes) fmt::print(stderr, "note: {}\n", note);
  if (!report.kinds.empty()) print_kinds(report);
  if (report.codes_elements > 0)
    fmt::print("{:.3f} bits per weight in codes\n",
               8.0 * static_cast<double>(report.codes_bytes) / static_cast<double>(report.codes_elements));
  if (!rows.empty()) print_comparison(compare_models(source, ModelSource(flags.target), rows, context));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{}: {}, {} in {} file{}, was {} ({:.1f} s, at most {} of memory)\n", flags.target, flags.format,
             format_bytes(report.bytes), report.files, report.files == 1 ? "" : "s", format_bytes(report.dense_bytes),
             seconds, format_bytes(peak_resident_bytes()));
  return 0;
}

}  // namespace

void add_quantize(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "quantize",
      "Writes a model in few bits, by GPTQ, AWQ, SmoothQuant or to the nearest code, and measures what that costs",
      {"nought quantize MODEL_DIR OUT --calibration text.txt --eval held-out.txt",
       "nought quantize MODEL_DIR OUT --format awq --method awq --calibration text.txt",
       "nought quantize MODEL_DIR OUT --format int8 --method smoothquant --calibration text.txt",
       "nought quantize MODEL_DIR OUT --format fp8",
       "nought quantize MODEL_DIR model.gguf --format gguf --type q4_k_m --eval held-out.txt"});
  const auto flags = std::make_shared<QuantizeFlags>();
  flags->format = "gptq";
  command
      ->add_option("SOURCE", flags->source,
                   "A Hugging Face folder, a GGUF file, a checkpoint, or the output_dir of a run")
      ->required();
  command->add_option("OUT", flags->target, "The folder to write, or the .gguf file")->required();
  command->add_option("--format", flags->format, fmt::format("{}; default: gptq", fmt::join(all_formats(), ", ")));
  command->add_option(
      "--method", flags->method,
      "gptq (what a column loses is made up for in those behind it, by the inputs of --calibration), awq "
      "(columns are scaled by the size of these inputs, then rounded), smoothquant (what is large in them is moved "
      "from norms to columns, for inputs in 8 bits) or rtn (round to nearest); "
      "default: gptq with --calibration, else rtn");
  command
      ->add_option("--bits", flags->bits,
                   "Bits of a weight's code: 2 to 8, as the format has them; default: 4, fp8 and int8: 8")
      ->type_name("N");
  command
      ->add_option("--group-size", flags->group_size,
                   "Neighbouring weights of a row that share a scale, with fp8 in as many rows; -1: all of them; "
                   "default: 128, int8: -1, mxfp4: 32")
      ->type_name("N");
  command->add_flag("--sym", flags->symmetric, "The zero point is the middle of the codes; default but for awq");
  command->add_flag("--asym", flags->asymmetric, "Each group has a zero point of its own; default for awq");
  command->add_flag("--desc-act", flags->act_order,
                    "gptq: columns by falling inputs, and groups in that order (act-order)");
  command->add_option("--damping", flags->damping,
                      "gptq: what is added to the moments of inputs, as a share of their mean; default: 0.01");
  command->add_option("--smoothing-strength", flags->smoothing,
                      "smoothquant: the share of the inputs' size that moves to the weights, 0 to 1; default: 0.5");
  command
      ->add_option("--type", flags->type,
                   "gguf: llama.cpp's type, such as q4_k_m; bitsandbytes: nf4 or fp4 (as convert --outtype)")
      ->type_name("TYPE");
  command->add_option("--skip", flags->skip, "Matrices that stay as they are: a regular expression of their names")
      ->type_name("PATTERN")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--calibration", flags->calibration,
                   "Text whose tokens the model reads while it is quantized, as data.files of a run")
      ->type_name("FILE")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--samples", flags->samples, "Samples of that text, evenly spread over it; default: 128")
      ->type_name("N");
  command->add_option("--seq-length", flags->seq_length, "Tokens of a sample; default: 512")->type_name("N");
  command
      ->add_option("--eval", flags->evaluation,
                   "Held-out text: perplexity before and after, and the divergence of the predictions")
      ->type_name("FILE")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--tokenizer", flags->tokenizer,
                   "The tokenizer, as data.tokenizer of a run; default: the folder's own, else bytes")
      ->type_name("NAME");
  command->add_option("--max-shard-size", flags->max_shard_size, "The largest safetensors file; default: 5GB");
  command->add_flag("--force", flags->force, "Write over what is there already");
  command->callback([&invocation, flags] { invocation.action = [flags] { return run_quantize(*flags); }; });
}

}  // namespace nought

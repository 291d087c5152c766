// nought convert: writes the weights of a folder or checkpoint as other files, for Hugging Face or llama.cpp.
#include "nought/weights/convert.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/generation.h"
#include "nought/cli/written_model.h"
#include "nought/models/gguf_metadata.h"
#include "nought/weights/four_bit_folder.h"
#include "nought/weights/gguf_adapter.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

struct ConvertFlags {
  std::string source, target, format, dtype, outtype, max_shard_size;
  AdapterFlags adapters;
  bool force = false, merge = false;

  bool gguf() const { return format == "gguf" || (format.empty() && target.ends_with(".gguf")); }
  /// What is written: "a GGUF file with matrices in f16".
  std::string describe(bool is_adapter) const {
    if (gguf() && is_adapter) return "a GGUF adapter in " + (outtype.empty() ? "f32" : outtype);
    if (gguf()) return "a GGUF file with matrices in " + (outtype.empty() ? "f16" : outtype);
    if (is_adapter) return "an adapter's folder";
    if (!outtype.empty()) return "a folder of bitsandbytes with matrices in " + outtype;
    return "a Hugging Face folder with safetensors" + (dtype.empty() ? "" : " in " + dtype);
  }
};

DType parse_dtype(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    if (name_of(dtype) == text) return dtype;
  fail<ConfigError>("--dtype must be f32, f16 or bf16, got {}", text);
}

/// "f32, f16, bf16, q8_0, ...".
std::string outtypes() {
  std::string names;
  for (const GgufMixture& each : gguf_mixtures()) names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

const GgufMixture& parse_outtype(const std::string& text) {
  const GgufMixture* found = find_gguf_mixture(lower_case(text));
  require<ConfigError>(found != nullptr, "--outtype must be one of {}, or nf4 or fp4 for a folder; got {}", outtypes(),
                       text);
  return *found;
}

/// The codes of a folder of bitsandbytes; nothing for a type of GGUF.
std::optional<CodeKind> four_bits_of(const std::string& outtype) {
  for (const CodeKind kind : {CodeKind::nf4, CodeKind::fp4})
    if (name_of(kind) == outtype) return kind;
  return std::nullopt;
}

/// An option of one format says nothing to the other.
void check_options(const ConvertFlags& options) {
  require<ConfigError>(options.format.empty() || options.format == "safetensors" || options.format == "gguf",
                       "--format must be safetensors or gguf, got {}", options.format);
  require<ConfigError>(!options.gguf() || (options.dtype.empty() && options.max_shard_size.empty()),
                       "--dtype and --max-shard-size are for safetensors; the format is gguf, which has --outtype");
  const bool four_bits = four_bits_of(options.outtype).has_value();
  require<ConfigError>(!four_bits || !options.gguf(), "--outtype {} is a folder's; the format is gguf",
                       options.outtype);
  require<ConfigError>(options.gguf() || four_bits || options.outtype.empty(),
                       "--outtype is for --format gguf, or nf4 or fp4; the format is safetensors, which has --dtype");
  require<ConfigError>(
      !four_bits || !options.merge,
      "--merge and --outtype {}: codes round away most of what an adapter adds: write the merged model "
      "in 16 bits, without --outtype",
      options.outtype);
  if (!options.dtype.empty()) parse_dtype(options.dtype);
  if (!options.outtype.empty() && !four_bits) parse_outtype(options.outtype);
  if (!options.max_shard_size.empty()) parse_bytes(options.max_shard_size, "--max-shard-size");
}

ConvertReport write(const ConvertFlags& options, const ModelSource& source, Memory& memory) {
  const bool is_adapter = !options.merge && !source.adapters().empty();
  if (is_adapter && options.gguf()) {
    const GgufType type = options.outtype.empty() ? GgufType::f32 : parse_outtype(options.outtype).type;
    ConvertReport report{.files = 1};
    for (const GgufTensor& tensor : write_gguf_adapter(source, options.target, type, memory))
      ++report.tensors, report.bytes += tensor.bytes();
    return report;
  }
  if (is_adapter) {
    require<ConfigError>(options.outtype.empty(), "--outtype {} is a model's: {} is an adapter", options.outtype,
                         options.source);
    return convert_to_adapter(source, options.target, memory);
  }
  if (options.gguf())
    return convert_to_gguf(source, options.target, parse_outtype(options.outtype.empty() ? "f16" : options.outtype),
                           memory);
  ConvertOptions convert;
  if (!options.dtype.empty()) convert.dtype = parse_dtype(options.dtype);
  if (!options.max_shard_size.empty())
    convert.max_shard_bytes = parse_bytes(options.max_shard_size, "--max-shard-size");
  if (const auto kind = four_bits_of(options.outtype))
    return convert_to_four_bits(source, options.target, *kind, convert, memory);
  return convert_to_hf(source, options.target, convert, memory);
}

/// What merging does to codes, where there are some.
std::vector<std::string> notes_of_merge(const ConvertFlags& options, const ModelSource& source) {
  std::vector<std::string> notes;
  const auto is_code = [&](const Parameter& parameter) { return source.stored()->decodes(parameter); };
  const auto holds_codes = [&](const auto& unit) { return std::ranges::any_of(unit->parameters(), is_code); };
  if (source.stored() != nullptr && std::ranges::any_of(source.model().units(), holds_codes))
    notes.push_back(
        "the model is in codes, which an adapter is not merged into: the adapter was added to what they stand for, and "
        "the merged weights are " +
        (options.gguf() ? std::string("encoded anew") : "dense"));
  if (options.gguf() && !options.outtype.empty() && weight_format(parse_outtype(options.outtype).type).block > 1)
    notes.push_back(fmt::format(
        "codes of {} round away a part of what the adapter adds: nought eval compares the file with one in f16",
        options.outtype));
  return notes;
}

int run_convert(const ConvertFlags& options) {
  const auto begin = std::chrono::steady_clock::now();
  check_options(options);
  const FoundModel found = find_model(options.source, options.adapters);
  require<ConfigError>(!options.merge || !found.adapters.empty(), "--merge: {} is no adapter, and --adapter names none",
                       options.source);
  const ModelSource source(found, options.merge ? AdaptersAre::merged : AdaptersAre::beside);
  require_free_target(options.target, options.gguf(), options.force,
                      found.adapters.empty() ? source.folder() : fs::path(options.source));
  say_choice(source.choice());
  const auto memory = Memory::create();
  ConvertReport report = write(options, source, *memory);
  for (const std::string& name : source.unused())
    fmt::print(stderr, "{}: the model has no use for tensor {}, it is left out\n", options.source, name);
  if (options.merge) std::ranges::move(notes_of_merge(options, source), std::back_inserter(report.notes));
  for (const std::string& note : report.notes) fmt::print(stderr, "note: {}\n", note);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{}: {}: {} tensors, {} in {} file{} from {} ({:.1f} s, at most {} of memory)\n", options.target,
             options.describe(!options.merge && !source.adapters().empty()), report.tensors, format_bytes(report.bytes),
             report.files, report.files == 1 ? "" : "s", source.folder().string(), seconds,
             format_bytes(peak_resident_bytes()));
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "convert", "Writes a checkpoint or a model folder as a Hugging Face folder or a GGUF file, streamed",
      {"nought convert out/checkpoint-500 out/model --dtype bf16", "nought convert MODEL_DIR OUT --max-shard-size 2GB",
       "nought convert MODEL_DIR model.gguf --outtype q4_k_m", "nought convert MODEL_DIR OUT --outtype nf4",
       "nought convert ADAPTER_DIR merged --merge", "nought convert ADAPTER_DIR adapter.gguf"});
  command->footer(
      command->get_footer() +
      fmt::format("\n\nGGUF is written for {}. llama.cpp knows sliding windows in cohere2, exaone4, gemma2, gemma3, "
                  "gpt_oss and olmo3 alone: with other families it sees all tokens of a sequence that is longer than "
                  "the window. convert notes what llama.cpp would compute differently, and refuses what it does not "
                  "have.",
                  fmt::join(gguf_families(), ", ")));
  const auto options = std::make_shared<ConvertFlags>();
  command
      ->add_option("SOURCE", options->source,
                   "A Hugging Face folder, a GGUF file, a checkpoint, or the output_dir of a run")
      ->required();
  command->add_option("OUT", options->target, "The folder to write, or the .gguf file")->required();
  command->add_option(
      "--format", options->format,
      fmt::format("safetensors or gguf; default: by the name of OUT. gguf takes {}; llama.cpp cuts text by "
                  "the patterns of gpt2, llama3, qwen2 and gpt-4o; a note names each difference",
                  fmt::join(gguf_families(), ", ")));
  command->add_option("--dtype", options->dtype,
                      "Dtype in safetensors: f32, f16 or bf16; default: that of the source (f32 for a checkpoint)");
  command->add_option("--max-shard-size", options->max_shard_size, "The largest safetensors file; default: 5GB");
  command->add_option(
      "--outtype", options->outtype,
      fmt::format("Type of matrices in GGUF, by llama.cpp's names: {}; default: f16, f32 for an adapter. nf4 or fp4: a "
                  "folder with the codes of bitsandbytes",
                  outtypes()));
  command->add_flag("--merge", options->merge,
                    "Of an adapter: write its model with the adapter added into the weights; without it, the adapter");
  add_adapter_options(*command, options->adapters);
  command->add_flag("--force", options->force, "Write over what is there already");
  command->callback([&invocation, options] { invocation.action = [options] { return run_convert(*options); }; });
}

}  // namespace nought

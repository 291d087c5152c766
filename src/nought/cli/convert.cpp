// nought convert: writes the weights of a folder or checkpoint as other files.
#include "nought/train/convert.h"

#include <array>
#include <chrono>
#include <memory>

#include <sys/resource.h>

#include "nought/base/text.h"
#include "nought/cli/commands.h"

namespace nought {

namespace {

struct Options {
  std::string source, target, dtype, max_shard_size = "5GB";
};

DType parse_dtype(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    if (name_of(dtype) == text) return dtype;
  fail<ConfigError>("--dtype must be f32, f16 or bf16, got {}", text);
}

/// Of this process, pages of mapped files included.
int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

int run_convert(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  ConvertOptions convert{.max_shard_bytes = parse_bytes(options.max_shard_size, "--max-shard-size")};
  if (!options.dtype.empty()) convert.dtype = parse_dtype(options.dtype);
  const ModelSource source(options.source);
  for (const std::string& name : source.unused())
    fmt::print(stderr, "{}: the model has no use for tensor {}, it is left out\n", options.source, name);
  const auto memory = Memory::create();
  const ConvertReport report = convert_to_hf(source, options.target, convert, *memory);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{}: {} tensors, {} in {} file{} from {} ({:.1f} s, at most {} of memory)\n", options.target,
             report.tensors, format_bytes(report.bytes), report.files, report.files == 1 ? "" : "s",
             source.folder().string(), seconds, format_bytes(peak_resident_bytes()));
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, "convert", "Writes a checkpoint or a model folder as a Hugging Face folder, streamed",
                  {"nought convert out/checkpoint-500 out/model --dtype bf16",
                   "nought convert MODEL_DIR OUT --max-shard-size 2GB"});
  const auto options = std::make_shared<Options>();
  command->add_option("SOURCE", options->source, "A Hugging Face folder, a checkpoint, or the output_dir of a run")
      ->required();
  command->add_option("OUT", options->target, "The folder to write")->required();
  command->add_option("--dtype", options->dtype, "f32, f16 or bf16; default: as they are (a checkpoint holds f32)");
  command->add_option("--max-shard-size", options->max_shard_size, "Largest file of weights")->capture_default_str();
  command->callback([&invocation, options] { invocation.action = [options] { return run_convert(*options); }; });
}

}  // namespace nought

// Readers of files of other programs, which need nothing beyond the folder io: so their programs are built alone.
#include "memory_file.h"
#include "support/temp_folder.h"
#include "targets.h"

#include "nought/base/json.h"
#include "nought/base/utf8.h"
#include "nought/io/foreign_run.h"
#include "nought/io/parquet_source.h"
#include "nought/io/safetensors.h"

namespace nought::fuzz {

namespace fs = std::filesystem;

void read_safetensors(std::span<const std::byte> bytes) {
  const MemoryFile file(bytes);
  static const auto memory = Memory::create();
  accept_or_refuse([&] {
    const SafetensorsFile opened(file.path());
    for (const TensorEntry& entry : opened.entries()) opened.load(entry.name, *memory);
    for (const std::string& name : opened.names()) {
      const TensorEntry* entry = opened.find(name);  // throws for a dtype that is not supported
      const int64_t numel = entry->shape.numel();
      const DType other = is_float(entry->dtype) ? DType::f32 : DType::i64;
      opened.read(name, {numel / 2, numel}, Tensor::empty(*memory, {numel - numel / 2}, other, Category::workspace));
    }
  });
}

void read_parquet(std::span<const std::byte> bytes) {
  const MemoryFile file(bytes);
  accept_or_refuse([&] {
    ParquetSource source(file.path());
    std::string text, block(size_t{1} << 16, '\0');
    while (const size_t count = source.read(std::span(block))) {
      text.append(block, 0, count);
      for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
        const std::string line = text.substr(0, end);
        if (is_valid_utf8(line) && !Json::parse(line, nullptr, /*allow_exceptions=*/false).is_object())
          give_up("a row that is no JSON object", line.c_str());
        text.erase(0, end + 1);
      }
      if (source.file_bytes() < 0 || text.size() > (size_t{1} << 26)) return;
    }
  });
}

namespace {

/// Reads some elements of each tensor, and its bytes.
void load_all(const TensorPieces& pieces) {
  static const auto memory = Memory::create();
  for (const TensorEntry& entry : pieces.entries()) {
    const int64_t numel = entry.shape.numel();
    const DType dtype = is_float(entry.dtype) ? DType::f32 : entry.dtype;
    pieces.read(entry.name, {numel / 2, numel},
                Tensor::empty(*memory, {numel - numel / 2}, dtype, Category::workspace));
    pieces.visit_bytes(entry.name, [](std::span<const std::byte>) {});
  }
}

/// Matrices of the corpus as two ranks would have them: cut along their last dimension.
std::optional<Shape> doubled_shapes(std::string_view name) {
  if (name.ends_with("norm.weight")) return Shape{8};
  return name.ends_with("proj.weight") ? std::optional(Shape{8, 16}) : std::nullopt;
}

/// A checkpoint of another program: its weights, and what its optimizer keeps of them.
void load_foreign(const fs::path& folder) {
  accept_or_refuse([&] {
    if (!holds_foreign_run(folder)) give_up("nothing of another program", folder.c_str());
    const ForeignRun run = read_foreign_run(folder, doubled_shapes);
    load_all(run.weights);
    for (const auto& [state, table] : run.states) load_all(table);
  });
}

}  // namespace

void read_dcp_metadata(std::span<const std::byte> bytes) {
  static const test::TempFolder folder;
  folder.write(".metadata", text_of(bytes));
  folder.write("__0_0.distcp", text_of(bytes));
  load_foreign(folder.path());
}

void read_deepspeed_states(std::span<const std::byte> bytes) {
  static const test::TempFolder folder, universal, ranks;
  folder.write("mp_rank_00_model_states.pt", text_of(bytes));
  load_foreign(folder.path());
  folder.write("zero_pp_rank_0_mp_rank_00_optim_states.pt", text_of(bytes));
  load_foreign(folder.path());
  fs::remove(folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt");
  for (const char* file : {"mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"})
    ranks.write(file, text_of(bytes));
  load_foreign(ranks.path());
  fs::create_directories(universal / "zero/w");
  for (const char* file : {"mp_rank_00_model_states.pt", "zero/optimizer_state.pt", "zero/w/fp32.pt",
                           "zero/w/exp_avg.pt", "zero/w/step.pt"})
    universal.write(file, text_of(bytes));
  load_foreign(universal.path());
}

}  // namespace nought::fuzz

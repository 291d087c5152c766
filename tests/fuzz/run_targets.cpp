// The readers of what runs and their launchers write: flight recorders, checkpoints, accelerate's configs.
#include <algorithm>
#include <array>
#include <utility>

#include "memory_file.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include "targets.h"

#include "nought/base/json.h"
#include "nought/checkpoint/checkpoint_contents.h"
#include "nought/comm/flight_files.h"
#include "nought/comm/flight_report.h"
#include "nought/config/accelerate.h"
#include "nought/config/yaml.h"
#include "nought/models/decoder.h"
#include "nought/weights/hf_folder.h"

namespace nought::fuzz {

namespace {

/// The second of two ranks, which waits in a call of the group 1.
const FlightSnapshot& other_rank() {
  static const FlightSnapshot snapshot = [] {
    FlightRecorder recorder(FlightPage::make(), 1, 2, "host");
    FlightMembership world = recorder.join(1, "world", 1, 2);
    recorder.start(recorder.submit(world, Collective::all_reduce, ReduceOp::sum, DType::f32, 64, -1));
    return flight_snapshot(*recorder.page());
  }();
  return snapshot;
}

void check_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines)
    if (line.find_first_of("\n\t\033") != std::string::npos) give_up("a line that is none", line.c_str());
}

/// A checkpoint of a tiny model, whose manifest is replaced again and again.
struct SavedCheckpoint {
  SavedCheckpoint() {
    ShardedModel model(context, *world, decoder, {});
    model.load(InitialState(1));
    std::filesystem::rename(save_checkpoint(model, {.step = 1}, folder.path(),
                                            [&](const std::filesystem::path& to) {
                                              export_companions(decoder.config(), DType::f32, {.tokenizer = "bytes"},
                                                                to);
                                            }),
                            path);  // a name that is no step's
  }
  const test::TempFolder folder;
  const std::filesystem::path path = folder / "saved";
  const std::unique_ptr<Communicator> world = make_self_communicator();
  const Context context = Context::cpu();
  Decoder decoder{test::tiny_llama(1)};
};

/// The manifest under the checksum of what it says.
std::string with_own_checksum(std::string_view text) {
  Json manifest = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object()) return std::string(text);
  manifest.erase("xxh3");
  const std::string members = manifest.dump();
  manifest["xxh3"] = xxh3_of(std::as_bytes(std::span(members)));
  return manifest.dump();
}

}  // namespace

void read_flight_file(std::span<const std::byte> bytes) {
  std::string page(text_of(bytes));
  page.resize(std::max(page.size(), FlightPage::kBytes));
  const MemoryFile file(std::as_bytes(std::span(page)));
  accept_or_refuse([&] {
    const FlightSnapshot rank = nought::read_flight_file(file.path());
    for (const FlightCall& call : rank.calls) check_lines({describe_call(rank, call)});
    for (const std::vector<FlightSnapshot>& ranks :
         {std::vector<FlightSnapshot>{rank}, std::vector<FlightSnapshot>{rank, other_rank()}}) {
      const FlightReport report = flight_report(ranks);
      if (report.table.size() != ranks.size() + 1) give_up("a table", "a rank is missing");
      check_lines(report.table), check_lines(report.findings);
    }
  });
}

void read_checkpoint_manifest(std::span<const std::byte> bytes) {
  static SavedCheckpoint saved;
  for (const std::string& text : {std::string(text_of(bytes)), with_own_checksum(text_of(bytes))}) {
    saved.folder.write("saved/manifest.json", text);
    accept_or_refuse([&] { contents_of(saved.path); });
    accept_or_refuse([&] { check_other_files(saved.path); });
    accept_or_refuse([&] {
      ShardedModel model(saved.context, *saved.world, saved.decoder, {});
      model.load(Checkpoint(saved.path, saved.decoder));
    });
  }
}

void read_accelerate_yaml(std::span<const std::byte> bytes) {
  accept_or_refuse([&] {
    const Json json = parse_yaml(text_of(bytes), "fuzz.yaml");
    Origins origins("fuzz.yaml");
    if (!is_accelerate_config(json)) return;
    for (const std::string& warning : read_accelerate_config(json, "fuzz.yaml", origins).warnings)
      check_lines({warning});
  });
}

}  // namespace nought::fuzz

// nought info: what this build contains and what it finds on this machine; or what is in a checkpoint.
#include <memory>

#include <fmt/format.h>
#include <hwy/highway.h>
#define OMPI_SKIP_MPICXX 1  // the C interface alone
#include <mpi.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/launch.h"
#include "nought/cli/launch_job.h"
#include "nought/cli/launch_mpirun.h"
#include "nought/cli/machine.h"
#include "nought/cli/model_info.h"
#include "nought/cli/own_program.h"
#include "nought/cli/tensor_info.h"
#include "nought/cli/version.h"
#include "nought/cuda/facts.h"
#include "nought/io/file_format.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/isa.h"
#include "nought/kernels/limits.h"

namespace nought {

namespace {

constexpr FileFormat kInfoFormat{"nought-info", 1};

/// "fp32 FMA on AVX-512: 304 GFLOP/s", measured.
OrderedJson peak(DType dtype) { return {{"name", matrix_peak_name(dtype)}, {"flops", measure_matrix_peak(dtype)}}; }

/// The best of the instruction sets that Highway compiles the kernels for and this CPU has.
std::string highway_target() { return hwy::TargetName(hwy::SupportedAndGeneratedTargets().front()); }

std::string compiler() {
#if defined(__clang__)
  return "clang++ " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

/// "Open MPI v4.1.4, package: ..." without the package.
std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);  // may be called before MPI_Init
  const std::string version(text.data());
  return version.substr(0, version.find_first_of(",\n"));
}

std::string mpirun_path() {
  try {
    return find_mpirun();
  } catch (const ConfigError&) {
    return "";
  }
}

OrderedJson facts_of(const cuda::LibraryFacts& library) {
  if (!library.missing.empty()) return {{"name", library.name}, {"missing", library.missing}};
  return {{"name", library.name}, {"version", library.version}, {"path", library.path}};
}

OrderedJson cuda_info() {
  const cuda::CudaFacts facts = cuda::find_cuda(cuda::LibrarySearch::of_environment());
  OrderedJson libraries = OrderedJson::array({facts_of(facts.driver)});
  for (const cuda::LibraryFacts& library : facts.libraries) libraries.push_back(facts_of(library));
  OrderedJson devices = OrderedJson::array();
  for (const cuda::DeviceFacts& device : facts.devices)
    devices.push_back({{"name", device.name},
                       {"memory_bytes", device.memory_bytes},
                       {"capability", fmt::format("{}.{}", device.major, device.minor)}});
  return {{"devices", devices}, {"no_devices", facts.no_devices}, {"libraries", libraries}};
}

OrderedJson collect() {
  const Cores cores = find_cores();
  OrderedJson info;
  info["format"] = kInfoFormat.str();
  info["version"] = version();
  info["package"] = own_package();
  info["compiler"] = compiler();
  info["build_type"] = NOUGHT_BUILD_TYPE;
  info["sanitizers"] = NOUGHT_SANITIZED;
  info["cpu"] = {{"model", cpu_model()},
                 {"features", cpu_features()},
                 {"isa", name_of(isa())},
                 {"fastest_isa", name_of(fastest_isa())},
                 {"best_isa", name_of(cpu_isa())},
                 {"highway_target", highway_target()},
                 {"bf16_products", cpu::bf16_products()},
                 {"peak", {{"f32", peak(DType::f32)}, {"bf16", peak(DType::bf16)}}}};
  info["cores"] = {{"machine", cores.machine}, {"usable", cores.usable}};
  info["threads_per_rank"] = threads_per_rank();
  info["memory"] = {{"total_bytes", meminfo_bytes("MemTotal")}, {"available_bytes", meminfo_bytes("MemAvailable")}};
  info["mpi"] = {{"library", mpi_library()}, {"mpirun", mpirun_path()}};
  info["cuda"] = cuda_info();
  info["backends"] = {{"communicators", {"self", "thread", "mpi"}}, {"devices", {"cpu"}}};
  return info;
}

std::string join(const OrderedJson& names) {
  return fmt::format("{}", fmt::join(names.get<std::vector<std::string>>(), " "));
}

/// "avx2, as NOUGHT_ISA asks; this CPU has avx512".
std::string instructions(const OrderedJson& cpu) {
  const std::string used = cpu["isa"], fastest = cpu["fastest_isa"], best = cpu["best_isa"];
  if (used != fastest) return fmt::format("{}, as NOUGHT_ISA asks; this CPU has {}", used, best);
  return used == best
             ? used
             : fmt::format("{}; this CPU has {}, which is slower here (NOUGHT_ISA={} uses it)", used, best, best);
}

/// "NVIDIA H100, 79.6 GiB, capability 9.0".
std::string gpu(const OrderedJson& device) {
  return fmt::format("{}, {}, capability {}", device["name"].get<std::string>(),
                     format_bytes(device["memory_bytes"].get<int64_t>()), device["capability"].get<std::string>());
}

/// "13.1.0 (/usr/lib/libcublasLt.so.13)", or the reason why it is missing.
std::string library_text(const OrderedJson& library) {
  if (library.contains("missing")) return library["missing"];
  return fmt::format("{} ({})", library["version"].get<std::string>(), library["path"].get<std::string>());
}

std::string to_text(const OrderedJson& info) {
  std::string text = fmt::format("nought {}\n", info["version"].get<std::string>());
  auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<15}{}\n", name, value.empty() ? "not found" : value);
  };
  auto string = [&](const char* pointer) { return info.at(OrderedJson::json_pointer(pointer)).get<std::string>(); };
  auto bytes = [&](const char* pointer) {
    return format_bytes(info.at(OrderedJson::json_pointer(pointer)).get<int64_t>());
  };

  const std::string sanitizers = string("/sanitizers");
  const std::string package = string("/package");
  line("package", package.empty() ? "none: built on this machine or copied" : package);
  line("compiler", string("/compiler"));
  line("build type", string("/build_type") + (sanitizers.empty() ? "" : " with sanitizers " + sanitizers));
  line("CPU", string("/cpu/model"));
  line("CPU features", join(info["cpu"]["features"]));
  line("instructions", instructions(info["cpu"]));
  line("Highway target", string("/cpu/highway_target"));
  line("bf16 products", string("/cpu/bf16_products"));
  for (const char* dtype : {"f32", "bf16"}) {
    const OrderedJson& peak = info["cpu"]["peak"][dtype];
    line(fmt::format("peak in {}", dtype),
         fmt::format("{}: {}", peak["name"].get<std::string>(), format_rate(peak["flops"].get<double>(), "FLOP/s")));
  }
  line("cores",
       fmt::format("{} usable of {}", info["cores"]["usable"].get<int>(), info["cores"]["machine"].get<int>()));
  line("threads", fmt::format("{} per rank, for one rank", info["threads_per_rank"].get<int>()));
  line("memory", fmt::format("{} available of {}", bytes("/memory/available_bytes"), bytes("/memory/total_bytes")));
  line("MPI", string("/mpi/library"));
  line("mpirun", string("/mpi/mpirun"));
  const OrderedJson& cuda = info["cuda"];
  for (const auto& device : cuda["devices"]) line("GPU", gpu(device) + "; see docs/cuda.md for what runs on it");
  if (cuda["devices"].empty()) line("GPU", "none: " + cuda["no_devices"].get<std::string>());
  for (const auto& library : cuda["libraries"]) line(library["name"].get<std::string>(), library_text(library));
  line("communicators", join(info["backends"]["communicators"]));
  line("devices", join(info["backends"]["devices"]));
  return text;
}

}  // namespace

void add_info(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "info", "Shows this build and this machine: CPU features, threads, memory, MPI; or what is in a checkpoint",
      {"nought info", "nought info --json", "nought info out/checkpoint-500", "nought info out",
       "nought info pytorch_model.bin"});
  const auto json = std::make_shared<bool>(false);
  const auto path = std::make_shared<std::string>(), base = std::make_shared<std::string>();
  command->add_option("PATH", *path,
                      "A checkpoint, a Hugging Face folder, the output_dir of a run, or a file of tensors");
  command->add_option("--base", *base, "Of an adapter: its model, in place of the one that it names")
      ->type_name("MODEL_DIR")
      ->needs("PATH");
  command->add_flag("--json", *json, "Print one JSON object");
  command->callback([&invocation, json, path, base] {
    invocation.action = [json, path, base] {
      const bool of_model = !path->empty();
      use_threads(threads_per_rank());
      const bool of_tensors = of_model && base->empty() && is_of_tensors(*path);
      const OrderedJson info = of_tensors ? tensor_info(*path) : of_model ? model_info(*path, *base) : collect();
      const auto text = [&] {
        return of_tensors ? tensor_info_text(info) : of_model ? model_info_text(info) : to_text(info);
      };
      fmt::print("{}", *json ? info.dump(2) + "\n" : text());
      return 0;
    };
  });
}

}  // namespace nought

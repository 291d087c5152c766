#include "prove/random_runs.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "support/golden_root.h"
#include <fmt/format.h>

namespace nought::test {
namespace {

constexpr int64_t kVocabulary = 256;  // that of bytes

/// Gives equal numbers on every machine, unlike the distributions of the standard library.
class Dice {
 public:
  explicit Dice(uint64_t seed) : generator_(seed) {}

  int64_t below(int64_t limit) { return static_cast<int64_t>(generator_() % static_cast<uint64_t>(limit)); }
  bool one_in(int64_t count) { return below(count) == 0; }
  template <class T>
  T of(std::initializer_list<T> all) {
    return *(all.begin() + below(static_cast<int64_t>(all.size())));
  }
  const char* word(std::initializer_list<const char*> all) { return of<const char*>(all); }

 private:
  std::mt19937_64 generator_;
};

std::vector<std::filesystem::path> families() {
  std::vector<std::filesystem::path> all;
  for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(golden_root()) / "configs"))
    all.push_back(file.path());
  std::sort(all.begin(), all.end());
  return all;
}

Json random_model(Dice& dice) {
  static const std::vector<std::filesystem::path> all = families();
  Json model = read_json_file(all[static_cast<size_t>(dice.below(static_cast<int64_t>(all.size())))].string());
  model["vocab_size"] = kVocabulary + 8 * dice.below(3);
  return model;
}

bool has_experts(const Json& model) {
  return std::ranges::any_of(std::array{"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"},
                             [&](const char* key) { return model.contains(key); });
}

/// The sizes of axes whose product, with what data parallelism is left, is the number of ranks.
Json random_mesh(Dice& dice, int ranks, bool experts) {
  Json mesh = Json::object();
  int left = ranks;
  const auto take = [&](const char* key, int64_t rarely) {
    int64_t size = 1;
    while (left % 2 == 0 && dice.one_in(rarely)) size *= 2, left /= 2;
    if (size > 1) mesh[key] = size;
    return size > 1;
  };
  if (take("tp_size", 4) && dice.one_in(2)) mesh["sequence_parallel"] = true;
  if (take("pp_size", 4))
    mesh["pipeline_parallel_schedule"] = dice.word({"GPipe", "1F1B", "Interleaved1F1B", "ZBH1", "ZBVZeroBubble"});
  if (dice.one_in(2)) {
    if (take("cp_size", 4)) mesh["cp_comm_type"] = dice.word({"auto", "p2p", "all_gather"});
  } else {
    take("sp_size", 4);
  }
  take("dp_replicate_size", 5);
  if (experts && left > 1 && dice.one_in(2)) mesh["ep_size"] = dice.one_in(2) ? 2 : left;
  return mesh;
}

Json random_zero(Dice& dice, const TempFolder& folder) {
  const int64_t stage = dice.below(4);
  Json zero{{"stage", stage}};
  if (dice.one_in(3)) zero["overlap_comm"] = dice.one_in(2);
  if (dice.one_in(3)) zero["reduce_bucket_size"] = dice.of<int64_t>({500, 5000, 50000});
  if (dice.one_in(4)) zero["allgather_bucket_size"] = dice.of<int64_t>({500, 5000, 50000});
  const auto offload = [&](const char* key) {
    Json& to = zero[key] = {{"device", dice.word({"cpu", "nvme"})}};
    if (to["device"] == "nvme") {
      to["nvme_path"] = (folder / "drive").string();
      if (dice.one_in(2)) to["pipeline_read"] = true;
      if (dice.one_in(2)) to["pipeline_write"] = true;
      if (dice.one_in(3)) to["max_in_cpu"] = dice.of<int64_t>({0, 10000});
    }
    if (key == std::string_view("offload_param")) to.erase("pipeline_read"), to.erase("pipeline_write");
    if (key == std::string_view("offload_optimizer")) to.erase("max_in_cpu");
  };
  if (dice.one_in(4)) offload("offload_optimizer");
  if (stage < 3) return zero;
  if (dice.one_in(5)) offload("offload_param");
  if (dice.one_in(4)) zero["zero_quantized_weights"] = true;
  if (dice.one_in(4)) zero["zero_quantized_gradients"] = true;
  if (dice.one_in(4)) zero["zero_hpz_partition_size"] = 2;
  if (dice.one_in(4)) zero["stage3_max_live_parameters"] = dice.of<int64_t>({0, 20000, 1000000});
  return zero;
}

int64_t stage_of(const Json& deepspeed) { return deepspeed["zero_optimization"]["stage"].get<int64_t>(); }

void add_precision(Dice& dice, Json& training, Json& deepspeed) {
  // Where a CPU has no units for bf16, each start measures what that costs, which is most of the time of a bf16 run.
  const bool bf16 = dice.one_in(4);
  training["bf16"] = bf16;
  if (!bf16 && dice.one_in(3)) deepspeed["fp16"] = {{"enabled", true}, {"initial_scale_power", 8}};
  if (bf16 && dice.one_in(4))
    deepspeed["bf16"] = {
        {"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", dice.one_in(2)}};
  else if (dice.one_in(4))
    deepspeed["data_types"] = {{"grad_accum_dtype", "fp32"}};
  if (dice.one_in(4)) deepspeed["communication_data_type"] = dice.word({"fp32", "bf16"});
  if (bf16 && dice.one_in(4)) training["fp8"] = dice.word({"delayed", "current"});
}

void add_optimizer(Dice& dice, Json& training, Json& deepspeed) {
  if (stage_of(deepspeed) == 0 && dice.one_in(4)) {
    const std::string type = dice.word({"OneBitAdam", "OneBitLamb", "ZeroOneAdam"});
    Json& params = deepspeed["optimizer"] = {{"type", type}, {"params", {{"lr", 1e-3}}}};
    params["params"][type == "ZeroOneAdam" ? "var_freeze_step" : "freeze_step"] = 1;
    return;
  }
  training["optim"] = dice.word({"adamw_torch", "adamw_torch", "adamw_8bit", "sgd", "adagrad", "rmsprop", "lion_32bit",
                                 "lion_8bit", "lamb", "muon"});
}

void add_savings(Dice& dice, Json& training, int64_t stage) {
  if (dice.one_in(2)) training["recompute"] = dice.word({"selective", "full"});
  if (training.value("recompute", "") == "full") {
    if (dice.one_in(4)) training["recompute_fp8"] = true;
    if (dice.one_in(4)) training["offload_inputs"] = dice.word({"host", "file"});
  }
  if (dice.one_in(5)) training["tiled_mlp"] = dice.of<int64_t>({2, 3});
  if (stage > 1 && dice.one_in(4)) training["memory_centric_tiling"] = dice.of<int64_t>({2, 3});
  if (dice.one_in(6)) training["delayed_update"] = true, training["delayed_update_warmup_steps"] = dice.below(2);
  if (dice.one_in(6)) training["update_beside_backward"] = dice.one_in(2);
  if (dice.one_in(4)) training["async_save"] = dice.one_in(2);
  if (dice.one_in(8)) training["freeze"] = {dice.word({"norm", "embed", "mlp"})};
}

}  // namespace

RandomRun random_run(uint64_t seed, const TempFolder& folder) {
  Dice dice(seed);
  RandomRun run;
  run.ranks = dice.of({1, 2, 2, 4, 4, 4, 4, 8});
  Json deepspeed = Json::object();
  Json training{{"max_steps", 2},
                {"save_steps", 1},
                {"per_device_train_batch_size", 1 + dice.below(3)},
                {"gradient_accumulation_steps", dice.of<int64_t>({1, 2, 4, 4})},
                {"learning_rate", 1e-3},
                {"max_grad_norm", dice.of({0.0, 1.0, 1.0})},
                {"seed", static_cast<int64_t>(seed)},
                {"output_dir", (folder / "out").string()}};
  Json model = random_model(dice);
  const Json mesh = random_mesh(dice, run.ranks, has_experts(model));
  if (!mesh.empty()) training["parallelism_config"] = mesh;
  deepspeed["zero_optimization"] = random_zero(dice, folder);
  add_precision(dice, training, deepspeed);
  add_optimizer(dice, training, deepspeed);
  add_savings(dice, training, stage_of(deepspeed));
  if (mesh.empty() && dice.one_in(4))
    training["virtual_ranks"] = run.ranks * training["gradient_accumulation_steps"].get<int64_t>();
  if (stage_of(deepspeed) == 0 && dice.one_in(6))
    training["ddp_comm_hook"] = {{"comm_hook", "power_sgd"}, {"start_powerSGD_iter", 1}};
  if (mesh.contains("dp_replicate_size") && dice.one_in(3))
    training["diloco"] = {{"sync_every", dice.of<int64_t>({1, 2})}};
  if (stage_of(deepspeed) == 1 && dice.one_in(5)) training["async_data_parallel"] = {{"staleness", 1}};
  if (has_experts(model) && dice.one_in(4)) training["moe_capacity_factor"] = 1.25;
  if (dice.one_in(6)) training["check_weight_hash_across_dp_replicas_interval"] = 1;
  Json data{{"files", {(folder / "text.txt").string()}},
            {"tokenizer", "bytes"},
            {"seq_length", dice.of<int64_t>({8, 16, 16, 32})}};
  if (dice.one_in(3)) data["validation_fraction"] = 0.2;
  if (dice.one_in(4)) data["separate_documents"] = true;
  if (dice.one_in(6)) training["sample_prompt"] = "line", training["sample_steps"] = 1;
  if (training.contains("sample_prompt")) training["sample_max_new_tokens"] = 3;
  const bool one_model = !training.contains("diloco") && !training.contains("async_data_parallel");
  if (dice.one_in(4) && one_model) training["receipt"] = {{"every", 1}};

  std::string text;
  for (int i = 0; i < 600; ++i) text += fmt::format("line {} of a text.\n", i % 13);
  folder.write("text.txt", text);
  run.file = {{"model", model}, {"data", data}, {"training", training}, {"deepspeed", deepspeed}};
  return run;
}

}  // namespace nought::test

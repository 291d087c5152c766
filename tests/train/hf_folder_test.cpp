// A rank that starts from a Hugging Face folder reads the bytes that it keeps, and no others.
#include "nought/weights/hf_folder.h"

#include <algorithm>
#include <atomic>

#include "support/golden.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/models/decoder.h"

namespace nought::hf_folder_test {
namespace {

using test::golden_folder;

class HfWeightsRead : public ::testing::TestWithParam<const char*> {};

TEST_P(HfWeightsRead, at_stage_3_the_ranks_read_the_file_once_and_hold_their_part_of_it) {
  const std::string folder = golden_folder(GetParam());
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool training : {false, true}) {
      SCOPED_TRACE(fmt::format("{} ranks, training {}", ranks, training));
      std::atomic<int64_t> read = 0;
      int64_t file_bytes = 0, numel = 0, largest_unit = 0;
      run_ranks(ranks, [&](Communicator& world, const Context& context) {
        Decoder decoder(ModelConfig::from_folder(folder));
        const HfWeights weights(folder, decoder);
        ShardedModel model(context, world, decoder, {.policy = Policy::stage(3), .training = training});
        model.load(weights);
        read += weights.bytes_read();
        if (world.rank() == 0) {
          numel = decoder.parameter_count();
          for (const auto& unit : decoder.units()) {
            largest_unit = std::max(largest_unit, unit->numel());
            for (const Parameter& parameter : unit->parameters())
              file_bytes += parameter.shape.numel() * size_of(weights.dtype_of(parameter));
          }
        }
        world.barrier().wait();
        // The parameters are f32, whatever the file keeps.
        const int64_t limit = 4 * (numel / ranks + largest_unit);
        const MemoryLedger& ledger = context.memory->ledger();
        EXPECT_LE(training ? ledger.peak(Category::parameters) : ledger.peak_total(), limit) << world.rank();
      });
      EXPECT_EQ(read, file_bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, HfWeightsRead,
                         ::testing::Values("open/llama_gqa", "open/gpt2_untied", "open/mixtral", "open/gpt_oss",
                                           "loader/llama_gqa_bf16_sharded"),
                         test::name_of_folder<const char*>);

/// Where parameters are whole on every rank, each reads them; the states of an optimizer that is sharded are read once.
TEST(HfWeightsRead, at_stages_1_and_2_the_masters_are_read_once_and_exchanged) {
  const std::string folder = golden_folder("open/llama");
  for (const int stage : {1, 2}) {
    std::atomic<int64_t> read = 0, numel = 0;
    run_ranks(2, [&](Communicator& world, const Context& context) {
      Decoder decoder(ModelConfig::from_folder(folder));
      const HfWeights weights(folder, decoder);
      ShardedModel model(context, world, decoder, {.policy = Policy::stage(stage)});
      model.load(weights);
      read += weights.bytes_read();
      numel = decoder.parameter_count();
    });
    EXPECT_EQ(read, 4 * numel) << "stage " << stage;
  }
}

nlohmann::json json_in(const std::filesystem::path& file) { return nlohmann::json::parse(test::read_bytes(file)); }

TEST(HfFolder, a_model_stops_where_an_answer_ends_and_where_it_stopped_before) {
  const auto bytes = make_tokenizer("bytes");
  ModelConfig config = test::tiny_llama();
  EXPECT_EQ(with_stop_ids(config, {}, *bytes).eos_token_ids, std::vector<int64_t>{0}) << "where a document ends";
  config.eos_token_ids = {7, 5};
  EXPECT_EQ(with_stop_ids(config, {}, *bytes), config);
  EXPECT_EQ(with_stop_ids(config, std::vector<int32_t>{9, 5}, *bytes).eos_token_ids, (std::vector<int64_t>{9, 5, 7}));
}

TEST(HfFolder, the_settings_of_generation_are_kept_and_get_every_token_that_ends_it) {
  const test::TempFolder folder;
  ModelConfig config = test::tiny_llama();
  config.eos_token_ids = {9, 5};
  config.bos_token_id = 1;
  const std::string from =
      folder.write("from/generation_config.json", R"({"top_p": 0.8, "eos_token_id": 7})").parent_path().string();
  std::filesystem::create_directory(folder / "to");
  export_companions(config, DType::f32, {from}, folder / "to");
  EXPECT_EQ(json_in(folder / "to/generation_config.json"),
            nlohmann::json({{"top_p", 0.8}, {"eos_token_id", {9, 5, 7}}, {"bos_token_id", 1}}));
  EXPECT_EQ(json_in(folder / "to/config.json")["eos_token_id"], nlohmann::json({9, 5}));
}

}  // namespace
}  // namespace nought::hf_folder_test

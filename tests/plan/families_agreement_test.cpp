// What is predicted of the families that are options of the decoder is what happens: layers that keep states, experts
// of every kind, projections and biases where others have none.
#include <fstream>

#include "support/agreement.h"
#include "support/golden.h"
#include "support/size.h"
#include "support/sweep.h"
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/models/tensor_cuts.h"

namespace nought::families_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

/// The config of a golden folder, so much larger that most categories pass 1 MiB.
ModelConfig enlarged(const std::string& name) {
  Json json = Json::parse(std::ifstream(test::golden_folder(name) + "/config.json"));
  const std::pair<const char*, int64_t> sizes[] = {{"vocab_size", 2048},
                                                   {"hidden_size", 240},
                                                   {"head_dim", 40},
                                                   {"rotary_dim", 20},
                                                   {"intermediate_size", 384},
                                                   {"intermediate_size_mlp", 384},
                                                   {"ffn_dim", 384},
                                                   {"moe_intermediate_size", 96},
                                                   {"shared_expert_intermediate_size", 96},
                                                   {"word_embed_proj_dim", 160},
                                                   {"linear_key_head_dim", 24},
                                                   {"linear_value_head_dim", 32},
                                                   {"max_position_embeddings", 128}};
  for (const auto& [key, value] : sizes)
    if (json.contains(key) && !json[key].is_null()) json[key] = value;
  return ModelConfig::from_json(json, name);
}

std::vector<Layout> layouts_for(const ModelConfig& config) {
  const Layout plain{.micro_batch = 2, .seq_length = 96, .wire = Wire::threads};
  std::vector<Layout> all(4, plain);
  all[1].ranks = 2, all[1].zero_stage = 3, all[1].recompute = Recompute::full;
  all[1].sharding.dtype = all[1].sharding.gradient_dtype = DType::bf16;
  all[2].ranks = all[2].tensor_ranks = 2, all[2].sequence_parallel = true;
  all[2].recompute = Recompute::selective;
  all[3].ranks = 2, all[3].accumulation = 2;
  all[3].pipeline = {.schedule = PipelineSchedule::one_f_one_b, .ranks = 2, .chunks = 1};
  if (config.experts && config.experts->rule.top_k > 1) {
    Layout spread = plain;
    spread.ranks = spread.expert_ranks = 2, spread.zero_stage = 2;
    all.push_back(spread);
  }
  return all;
}

/// Where ranks hold different experts, tokens choose all of them: alike, as the dry run takes them to.
ModelConfig balanced(ModelConfig config, const Layout& layout) {
  if (layout.expert_ranks == 1) return config;
  RouterRule& rule = config.experts->rule;
  rule.top_k = config.experts->num_experts, rule.kept_groups = rule.num_groups;
  return config;
}

/// Each family on one layout, in turns; with NOUGHT_LONG on each.
TEST(FamiliesAgreement, holds_for_every_family_that_is_options) {
  std::vector<const char*> names(std::begin(test::kGoldenOptions), std::end(test::kGoldenOptions));
  names.push_back("open/opt_post");
  size_t turn = 0;
  for (const char* name : names) {
    const ModelConfig config = enlarged(name);
    ASSERT_EQ(reason_not_to_cut(config, 2), "");
    const std::vector<Layout> all = layouts_for(config);
    for (size_t i = 0; i < all.size(); ++i) {
      if (!test::runs_everything() && i != turn % all.size()) continue;
      SCOPED_TRACE(fmt::format("{}, {}", name, all[i].str()));
      const ModelConfig run = balanced(config, all[i]);
      const std::vector<Prediction> predicted = predict_places(run, all[i]);
      const std::vector<test::Measurement> measured = test::measure_places(run, all[i]);
      ASSERT_EQ(predicted.size(), measured.size());
      for (size_t place = 0; place < measured.size(); ++place) {
        test::expect_agreement(predicted[place], measured[place]);
        EXPECT_GT(predicted[place].memory.peak[static_cast<size_t>(Category::parameters)], test::kMiB);
        if (!config.experts) {  // whose blocks have other sizes in each step
          EXPECT_EQ(measured[place].late_allocations, 0);
        }
      }
    }
    ++turn;
  }
}

}  // namespace
}  // namespace nought::families_agreement_test

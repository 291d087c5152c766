// The section "elasticity": DeepSpeed's answers, and where they are corrected.
#include "nought/config/elasticity.h"

#include "support/golden.h"
#include "support/message_of.h"
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/base/open_file.h"

namespace nought::elasticity_test {
namespace {

using test::error_of;
using test::plan_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

DsElasticity section_of(const Json& json) { return from_json<DsElasticity>(json, Origins{}, "elasticity"); }

DsElasticity section_of(const char* text) { return section_of(parse_json(text, "elasticity")); }

TEST(Elasticity, gives_deepspeeds_answers) {
  const std::string path = test::golden_folder("scale/elasticity.json");
  const Json cases = read_json_file(path);
  ASSERT_EQ(cases.size(), 50);
  for (const Json& each : cases) {
    SCOPED_TRACE(each.dump());
    const int64_t ranks = each["world_size"].get<int64_t>();
    const auto answer = [&] {
      const DsElasticity section = section_of(each["elasticity"]);
      return ranks == 0 ? elastic_batch(section, "elasticity") : elastic_batch_of(section, "elasticity", ranks);
    };
    const Json& expected = each["expect"];
    if (expected.contains("error")) {
      EXPECT_THROW(answer(), ConfigError);
      continue;
    }
    const ElasticBatch batch = answer();
    EXPECT_EQ(batch.train_batch, expected["batch"].get<int64_t>());
    EXPECT_EQ(batch.data_ranks, expected["counts"].get<std::vector<int64_t>>());
    if (ranks > 0) {
      EXPECT_EQ(batch.micro_batch(ranks), expected["micro_batch"].get<int64_t>());
    }
  }
}

// DeepSpeed compares 4 ranks with [2, 4, 6, ...] here and divides the batch by 4: it trains with half of the batch.
TEST(Elasticity, counts_data_parallel_ranks_where_several_share_a_model) {
  const DsElasticity section =
      section_of(R"({"max_train_batch_size": 512, "micro_batch_sizes": [1, 2, 4], "min_gpus": 4,
      "max_gpus": 16, "num_gpus_per_node": 4, "model_parallel_size": 2, "version": 0.2})");
  const ElasticBatch batch = elastic_batch(section, "elasticity");
  EXPECT_EQ(batch.train_batch, 480);  // twice 240, the batch of the two data-parallel ranks of a node
  EXPECT_THAT(batch.data_ranks, ElementsAre(2, 4, 6, 8));
  for (const int64_t ranks : batch.data_ranks)
    EXPECT_EQ(batch.micro_batch(ranks) * batch.accumulation(ranks) * ranks, batch.train_batch);
}

TEST(Elasticity, version_2_gives_ranks_that_are_no_whole_nodes_a_batch_of_their_own) {
  const char* text = R"({"max_train_batch_size": 100, "micro_batch_sizes": [4, 6], "max_gpus": 8,
      "num_gpus_per_node": 2, "version": 0.2, "prefer_larger_batch": true})";
  DsElasticity section = section_of(text);
  const ElasticBatch batch = elastic_batch_of(section, "elasticity", 3);
  EXPECT_EQ(batch.train_batch, 96);  // 8 x 4 x 3, above 5 x 6 x 3
  EXPECT_THAT(batch.data_ranks, ElementsAre(3));
  EXPECT_EQ(batch.micro_batch(3), 4);
  section.prefer_larger_batch.value = false;
  EXPECT_EQ(elastic_batch_of(section, "elasticity", 3).train_batch, 90);
}

TEST(Elasticity, names_what_is_wrong_and_what_would_be_nearest) {
  const auto error = [](const std::string& change, int64_t ranks) {
    Json json = parse_json(R"({"max_train_batch_size": 64, "micro_batch_sizes": [4], "version": 0.1})", "elasticity");
    json.update(parse_json(change, "change"));
    return test::message_of<ConfigError>([&] { elastic_batch_of(section_of(json), "ds.json: elasticity", ranks); });
  };
  EXPECT_THAT(error("{}", 5),
              AllOf(HasSubstr("5 data-parallel ranks do not make the batch of 48"), HasSubstr("4 and 6")));
  EXPECT_THAT(error("{}", 50), HasSubstr("the nearest that do: 12 ("));
  EXPECT_THAT(error(R"({"min_gpus": 9, "max_gpus": 11})", 9),
              AllOf(HasSubstr("no number of ranks from min_gpus 9 to max_gpus 11"),
                    HasSubstr("nearest number that makes one is 12")));
  EXPECT_THAT(error(R"({"min_gpus": 3, "max_gpus": 2})", 1), HasSubstr("min_gpus 3 is above max_gpus 2"));
  EXPECT_THAT(error(R"({"micro_batch_sizes": [4, 65]})", 1), HasSubstr("expected numbers from 1 to 64, got 65"));
  EXPECT_THAT(error(R"({"micro_batch_sizes": []})", 1), HasSubstr("micro_batch_sizes is missing"));
  EXPECT_THAT(error(R"({"max_train_batch_size": null})", 1), HasSubstr("max_train_batch_size is missing"));
  EXPECT_THAT(error(R"({"version": 0.3})", 1), HasSubstr("ds.json: elasticity.version: expected 0.1 or 0.2, got 0.3"));
  EXPECT_THAT(error(R"({"model_parallel_size": 2})", 1), HasSubstr("version 0.1 knows no model_parallel_size 2"));
  EXPECT_THAT(error(R"({"min_gpus": 0})", 1), HasSubstr("min_gpus: expected at least 1, got 0"));
  EXPECT_THAT(error(R"({"min_time": -1})", 1), HasSubstr("min_time: expected a finite number >= 0"));
}

constexpr const char* kRun =
    R"({"data": {"seq_length": 64}, "training": {"output_dir": "out"}, "deepspeed": {"elasticity":
    {"enabled": true, "max_train_batch_size": 64, "micro_batch_sizes": [2, 4], "version": 0.1}}})";

TEST(Elasticity, of_a_run_keeps_the_batch_at_every_number_of_ranks) {
  for (const int ranks : {1, 2, 3, 4, 6, 8, 12, 24}) {
    const RunPlan plan = plan_of(kRun, ranks);
    EXPECT_EQ(plan.layout.train_batch(), 48) << ranks;
    EXPECT_TRUE(plan.warnings.empty());
  }
  EXPECT_EQ(plan_of(kRun, 3).layout.micro_batch, 4);
  EXPECT_EQ(plan_of(kRun, 24).layout.micro_batch, 2);
  EXPECT_EQ(plan_of(kRun, 6, {"training.parallelism_config.tp_size=2"}).layout.train_batch(), 48);
  EXPECT_THAT(error_of(kRun, 5), HasSubstr("the nearest that do: 4 and 6"));
}

TEST(Elasticity, of_a_run_is_the_only_one_to_give_the_batch) {
  const std::string both = error_of(kRun, 2, {"deepspeed.train_batch_size=32"});
  EXPECT_THAT(both,
              AllOf(HasSubstr("train_batch_size both give the batch"), HasSubstr("ignore_non_elastic_batch_info")));
  EXPECT_THAT(error_of(kRun, 2, {"training.per_device_train_batch_size=2"}), HasSubstr("both give the batch"));
  const RunPlan plan = plan_of(
      kRun, 2,
      {"deepspeed.train_micro_batch_size_per_gpu=1", "deepspeed.elasticity.ignore_non_elastic_batch_info=true"});
  EXPECT_EQ(plan.layout.micro_batch, 4);
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("has no effect")));
}

TEST(Elasticity, of_a_run_must_know_how_many_ranks_share_a_model) {
  const std::vector<std::string> nodes{"deepspeed.elasticity.version=0.2", "deepspeed.elasticity.num_gpus_per_node=2"};
  std::vector<std::string> shared = nodes;
  shared.emplace_back("training.parallelism_config.tp_size=2");
  EXPECT_THAT(error_of(kRun, 4, shared), HasSubstr("model_parallel_size = 1, but 2 ranks share a model"));
  shared.emplace_back("deepspeed.elasticity.model_parallel_size=2");
  EXPECT_EQ(plan_of(kRun, 4, shared).layout.train_batch(), 48);
  EXPECT_THAT(plan_of(kRun, 7, nodes).warnings, ElementsAre(HasSubstr("this run's batch is 56")));
}

}  // namespace
}  // namespace nought::elasticity_test

// Which ranks share a model that generates, and what is refused with which advice.
#include "nought/infer/generation_mesh.h"

#include "support/golden.h"
#include "support/message_of.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::generation_mesh_test {
namespace {

NOUGHT_FILE_SIZE(medium);

ModelConfig golden(const char* name) { return ModelConfig::from_folder(test::golden_folder(name)); }

std::vector<int> sizes_of(const GridSizes& mesh) { return {mesh.tensor, mesh.pipeline, mesh.expert}; }

/// What is asked for, and the sizes of tensor, pipeline and expert that come of it.
struct Choice {
  int ranks;
  GenerationSizes asked;
  std::vector<int> sizes;
};

TEST(GenerationMesh, sizes_that_are_not_given_are_what_the_others_leave) {
  const ModelConfig dense = golden("open/llama"), experts = golden("open/mixtral");
  for (const Choice& choice : std::vector<Choice>{{1, {}, {1, 1, 1}},
                                                  {4, {}, {4, 1, 1}},
                                                  {4, {.pipeline = 2}, {2, 2, 1}},
                                                  {4, {.pipeline = 4}, {1, 4, 1}},
                                                  {4, {.tensor = 2}, {2, 2, 1}},
                                                  {4, {.tensor = 1}, {1, 4, 1}}})
    EXPECT_EQ(sizes_of(generation_mesh(dense, choice.ranks, choice.asked)), choice.sizes);
  for (const Choice& choice : std::vector<Choice>{{4, {.experts = 2}, {2, 1, 2}},
                                                  {8, {.pipeline = 2, .experts = 2}, {2, 2, 2}},
                                                  {8, {.tensor = 1, .experts = 4}, {1, 2, 4}}}) {
    const GridSizes mesh = generation_mesh(experts, choice.ranks, choice.asked);
    EXPECT_EQ(sizes_of(mesh), choice.sizes);
    EXPECT_EQ(Grid(mesh).ranks(), choice.ranks);
    EXPECT_EQ(mesh.shard, mesh.expert);
    EXPECT_EQ(mesh.expert_tensor, mesh.tensor);
  }
}

/// What is asked for, why it is refused, and what to ask for.
struct Refusal {
  int ranks;
  GenerationSizes asked;
  const char *reason, *advice;
};

TEST(GenerationMesh, what_cannot_be_is_one_line_with_the_nearest_that_can) {
  const ModelConfig dense = golden("open/llama"), experts = golden("open/mixtral");
  const auto expect = [](const ModelConfig& config, const Refusal& refusal) {
    const auto message = test::message_of<ConfigError>([&] { generation_mesh(config, refusal.ranks, refusal.asked); });
    EXPECT_THAT(message, ::testing::HasSubstr(refusal.reason));
    EXPECT_THAT(message, ::testing::EndsWith(refusal.advice));
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0);
  };
  for (const Refusal& refusal : std::vector<Refusal>{
           {3, {}, "its 4 attention heads do not divide", "the nearest that works is --ranks 3 --pp 3"},
           {8, {}, "its 4 attention heads do not divide", "the nearest that works is --ranks 8 --tp 4 --pp 2"},
           {4, {.pipeline = 3}, "the number of ranks, 4, is not the product", "--ranks 4 --tp 2 --pp 2"},
           {4, {.tensor = 2, .pipeline = 4}, "the number of ranks, 4, is not the product", "--ranks 4 --pp 4"},
           {8, {.tensor = 1}, "cannot each hold one of the model's 4 Units", "--ranks 8 --tp 2 --pp 4"},
           {2, {.experts = 2}, "a llama model has no experts", "--ranks 2 --tp 2"},
           {5, {}, "its 4 attention heads do not divide", "the nearest that works is --ranks 4 --tp 4"},
           {2, {.tensor = 0}, "--tp 0", "it must be 1 to the number of ranks, 2"},
           {2, {.pipeline = 3}, "--pp 3", "it must be 1 to the number of ranks, 2"},
           {2, {.experts = -1}, "--ep -1", "it must be 1 to the number of ranks, 2"}})
    expect(dense, refusal);
  expect(experts, {6, {.tensor = 1, .pipeline = 2}, "is not the product", "--ranks 6 --tp 2 --pp 3"});
  expect(experts, {3, {.tensor = 1, .experts = 3}, "cannot hold equally many of the 4 experts", "--ranks 3 --pp 3"});
}

}  // namespace
}  // namespace nought::generation_mesh_test

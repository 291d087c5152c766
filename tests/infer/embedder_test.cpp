// Hidden states of encoders, and vectors of texts, are those of transformers and of sentence-transformers.
#include "nought/infer/embedder.h"

#include "support/golden.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/comm/communicator.h"
#include "nought/weights/model_source.h"
#include "nought/zero/sharded_model.h"

namespace nought::embedder_test {
namespace {

using test::message_of;
using ::testing::HasSubstr;

/// A folder of tests/golden/encoders.
struct Folder {
  explicit Folder(const std::string& name)
      : path(test::golden_folder("encoders/" + name)),
        config(EmbeddingConfig::from_folder(path, *context.memory)),
        source(FoundModel{path}, AdaptersAre::beside, HeadIs::left_out),
        decoder(source.config()),
        model(context, *self, decoder, {.training = false}),
        tokenizer(make_tokenizer(path)),
        golden(path + "/golden.safetensors") {
    model.load(source.weights());
  }
  Tensor load(const std::string& name) { return golden.load(name, *context.memory); }
  std::vector<std::string> texts() const {
    std::vector<std::string> all;
    for (const Json& each : read_json_file(path + "/golden_texts.json")) all.push_back(each.at("text"));
    return all;
  }
  /// The rows of the golden batch, without their padding.
  std::vector<EmbeddedText> rows() {
    const std::vector<double> ids = load("input_ids").to_vector<double>(),
                              mask = load("attention_mask").to_vector<double>();
    const auto length = static_cast<size_t>(load("input_ids").dim(1));
    std::vector<EmbeddedText> texts(ids.size() / length);
    for (size_t i = 0; i < ids.size(); ++i)
      if (mask[i] != 0) texts[i / length].ids.push_back(static_cast<int32_t>(ids[i]));
    return texts;
  }
  std::vector<float> vectors_of(std::span<const EmbeddedText> of, int64_t batch) {
    return Embedder(config, decoder, *tokenizer, context).embed(of, batch);
  }
  std::vector<float> vectors_behind(const std::string& prompt, int64_t batch) {
    const Embedder embedder(config, decoder, *tokenizer, context);
    std::vector<EmbeddedText> all;
    for (const std::string& text : texts()) all.push_back(embedder.tokens(prompt, text));
    return embedder.embed(all, batch);
  }

  std::string path;
  Context context = Context::cpu();
  EmbeddingConfig config;
  ModelSource source;
  Decoder decoder;
  std::unique_ptr<Communicator> self = make_self_communicator();
  ShardedModel model;
  std::unique_ptr<Tokenizer> tokenizer;
  SafetensorsFile golden;
};

double largest_difference(const std::vector<float>& actual, const Tensor& expected) {
  const std::vector<double> values = expected.to_vector<double>();
  EXPECT_EQ(actual.size(), values.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(actual.size(), values.size()); ++i)
    largest = std::max(largest, std::abs(actual[i] - values[i]));
  return largest;
}

class GoldenEncoder : public testing::TestWithParam<const char*> {};

TEST_P(GoldenEncoder, hidden_states_and_pooled_vectors_are_those_of_a_padded_batch) {
  Folder folder(GetParam());
  const std::vector<EmbeddedText> rows = folder.rows();
  std::vector<int32_t> ids, starts;
  for (const EmbeddedText& row : rows) {
    starts.push_back(static_cast<int32_t>(ids.size()));
    ids.insert(ids.end(), row.ids.begin(), row.ids.end());
  }
  const Tensor hidden = folder.decoder.hidden(
      folder.context, {.input_ids = Tensor::of<int32_t>(*folder.context.memory, {1, std::ssize(ids)}, ids),
                       .targets = {},
                       .document_starts = {starts}});
  const Tensor expected = folder.load("hidden");
  const int64_t length = expected.dim(1), width = expected.dim(2);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t tokens = std::ssize(rows[i].ids), row = static_cast<int64_t>(i) * length;
    EXPECT_LE(test::difference(hidden.slice(starts[i], starts[i] + tokens),
                               expected.reshape({expected.numel() / width, width}).slice(row, row + tokens))
                  .max_abs,
              5e-5)
        << "row " << i;
  }
  folder.config.steps.clear();
  for (const char* mode : {"cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"}) {
    folder.config.pooling = {*pooling_named(mode)};
    EXPECT_LE(largest_difference(folder.vectors_of(rows, 2), folder.load(fmt::format("pooled.{}", mode))), 5e-5)
        << mode;
  }
}

TEST_P(GoldenEncoder, texts_get_the_vectors_of_sentence_transformers) {
  Folder folder(GetParam());
  const std::vector<float> vectors = folder.vectors_behind("", 4);
  EXPECT_LE(largest_difference(vectors, folder.load("embeddings")), 1e-5);
  EXPECT_EQ(vectors, folder.vectors_behind("", 1)) << "beside others a text has another vector than alone";
  for (const auto& [name, prompt] : folder.config.prompts)
    EXPECT_LE(
        largest_difference(folder.vectors_behind(prompt, 3), folder.load(prompt.empty() ? "embeddings" : "prompted")),
        1e-5)
        << name;
}

INSTANTIATE_TEST_SUITE_P(Folders, GoldenEncoder,
                         testing::Values("bert", "roberta", "xlm-roberta", "modernbert", "qwen3"),
                         test::name_of_folder<const char*>);

TEST(Embedder, longer_texts_are_cut_within_their_special_tokens) {
  Folder folder("bert");
  folder.config.max_tokens = 5;
  const auto tokens = [&] {
    return Embedder(folder.config, folder.decoder, *folder.tokenizer, folder.context).tokens("", "the dog the fox the");
  };
  const EmbeddedText first = tokens();
  folder.config.cuts_left = true;
  const EmbeddedText last = tokens();
  EXPECT_TRUE(first.cut && last.cut);
  ASSERT_EQ(first.ids.size(), 5u);
  ASSERT_EQ(last.ids.size(), 5u);
  EXPECT_NE(first.ids, last.ids);
  EXPECT_EQ(first.ids.front(), last.ids.front());
  EXPECT_EQ(first.ids.back(), last.ids.back());
  folder.config.max_tokens = 2;
  EXPECT_THAT(message_of<ConfigError>(tokens), HasSubstr("none beside the 2 special ones"));
}

TEST(Embedder, a_prompt_may_be_left_out_of_the_pooling) {
  Folder folder("bert");
  folder.config.include_prompt = false;
  const Embedder embedder(folder.config, folder.decoder, *folder.tokenizer, folder.context);
  const EmbeddedText text = embedder.tokens("the dog ", "and the fox");
  EXPECT_EQ(text.begin, std::ssize(embedder.tokens("", "the dog ").ids) - 1);  // without what ends a text
  EXPECT_EQ(embedder.tokens("", "and the fox").begin, 0);
}

TEST(Embedder, a_dense_layer_of_another_size_is_refused) {
  Folder folder("xlm-roberta");
  folder.config.pooling.push_back(PoolingMode::max);
  EXPECT_THAT(
      message_of<ConfigError>([&] { Embedder(folder.config, folder.decoder, *folder.tokenizer, folder.context); }),
      HasSubstr("a dense layer reads vectors of 24 elements, and gets 48"));
}

}  // namespace
}  // namespace nought::embedder_test

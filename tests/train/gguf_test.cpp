// What a GGUF file holds, by a reader of its own: llama.cpp's names, orders and keys, and the source's values.
#include <filesystem>

#include "support/gguf_reader.h"
#include "support/golden.h"
#include "support/saved_model.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/chat/chat_template.h"
#include "nought/models/gguf_metadata.h"
#include "nought/text/tokenizer_export.h"
#include "nought/weights/convert.h"
#include "nought/weights/gguf_tokenizer.h"

namespace nought::gguf_test {
namespace {

using test::GgufFile;
using test::golden_folder;
using test::message_of;
using test::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Exported {
  GgufFile file;
  ConvertReport report;
};

Exported export_gguf(const std::filesystem::path& folder, GgufType type) {
  TempFolder target;
  const auto memory = Memory::create();
  ConvertReport report = convert_to_gguf(ModelSource(folder), target / "x.gguf", gguf_mixture(type), *memory);
  return {GgufFile(test::read_bytes(target / "x.gguf")), report};
}

std::vector<double> source_of(const std::string& folder, const std::string& name) {
  const auto memory = Memory::create();
  return WeightFiles(folder).load(name, *memory).to_vector<double>();
}

/// The element-wise distance is at most half a step of what the type can hold.
void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, const std::string& name,
                 double relative, const std::vector<double>& steps) {
  ASSERT_EQ(actual.size(), expected.size()) << name;
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_LE(std::abs(actual[i] - expected[i]),
              steps[i] / 2 * (1 + 1e-6) + relative * std::abs(expected[i]) + 1e-7 * (relative > 0))
        << name << "[" << i << "]";
}

/// Rows of [heads, 2, head_dim / 2] become [heads, head_dim / 2, 2].
std::vector<double> rotated_in_pairs(const std::vector<double>& x, size_t head_dim, size_t row) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size() / row; ++i) {
    const size_t head = i / head_dim, half = i % head_dim / (head_dim / 2), j = i % (head_dim / 2);
    for (size_t k = 0; k < row; ++k) y[(head * head_dim + 2 * j + half) * row + k] = x[i * row + k];
  }
  return y;
}

struct Case {
  GgufType type;
  uint32_t number;
  double relative;  // half a unit in the last place
};

TEST(Gguf, every_type_of_llama_holds_the_sources_values_with_the_rotated_rows_in_pairs) {
  const std::string folder = golden_folder("open/llama_gqa");
  const ModelConfig config = ModelConfig::from_folder(folder);
  const auto hidden = static_cast<size_t>(config.hidden_size), head_dim = static_cast<size_t>(config.head_dim);
  for (const Case& each : {Case{GgufType::f32, 0, 0}, Case{GgufType::f16, 1, 0x1p-11}, Case{GgufType::bf16, 30, 0x1p-8},
                           Case{GgufType::q8_0, 8, 0}}) {
    SCOPED_TRACE(name_of(each.type));
    const GgufFile file = export_gguf(folder, each.type).file;
    const std::string layer = "model.layers.1.", block = "blk.1.";
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"model.embed_tokens.weight", "token_embd.weight"},
             {"model.norm.weight", "output_norm.weight"},
             {layer + "input_layernorm.weight", block + "attn_norm.weight"},
             {layer + "post_attention_layernorm.weight", block + "ffn_norm.weight"},
             {layer + "self_attn.q_proj.weight", block + "attn_q.weight"},
             {layer + "self_attn.k_proj.weight", block + "attn_k.weight"},
             {layer + "self_attn.v_proj.weight", block + "attn_v.weight"},
             {layer + "self_attn.o_proj.weight", block + "attn_output.weight"},
             {layer + "mlp.gate_proj.weight", block + "ffn_gate.weight"},
             {layer + "mlp.up_proj.weight", block + "ffn_up.weight"},
             {layer + "mlp.down_proj.weight", block + "ffn_down.weight"}}) {
      std::vector<double> want = source_of(folder, from), steps;
      if (to.ends_with("attn_q.weight") || to.ends_with("attn_k.weight"))
        want = rotated_in_pairs(want, head_dim, hidden);
      const std::vector<double> have = file.read(to, &steps);
      const bool norm = to.ends_with("norm.weight");
      const auto& tensor = file.tensors.at(to);
      EXPECT_EQ(tensor.type, norm ? 0 : each.number) << to;
      expect_near(have, want, to, norm ? 0 : each.relative, steps);
    }
    EXPECT_THAT(file.tensors.at("blk.0.ffn_down.weight").dims,
                ElementsAre(static_cast<uint64_t>(config.intermediate_size), hidden))
        << "innermost first";
    EXPECT_FALSE(file.tensors.contains("output.weight")) << "tied";
    EXPECT_EQ(file.tensors.size(), 2 + 9 * static_cast<size_t>(config.num_layers));
  }
}

TEST(Gguf, keys_say_what_the_model_is) {
  const GgufFile file = export_gguf(golden_folder("open/llama_gqa"), GgufType::q8_0).file;
  const ModelConfig config = ModelConfig::from_folder(golden_folder("open/llama_gqa"));
  EXPECT_EQ(file.string("general.architecture"), "llama");
  EXPECT_EQ(file.string("general.name"), "llama_gqa");
  EXPECT_EQ(file.number("general.file_type"), 7);
  EXPECT_EQ(file.number("general.quantization_version"), 2);
  EXPECT_EQ(file.number("llama.block_count"), config.num_layers);
  EXPECT_EQ(file.number("llama.embedding_length"), config.hidden_size);
  EXPECT_EQ(file.number("llama.feed_forward_length"), config.intermediate_size);
  EXPECT_EQ(file.number("llama.attention.head_count"), config.num_heads);
  EXPECT_EQ(file.number("llama.attention.head_count_kv"), config.num_kv_heads);
  EXPECT_EQ(file.number("llama.attention.key_length"), config.head_dim);
  EXPECT_EQ(file.number("llama.rope.dimension_count"), config.head_dim);
  EXPECT_EQ(file.number("llama.rope.freq_base"), 500000);
  EXPECT_EQ(file.number("llama.context_length"), config.max_positions);
  EXPECT_FLOAT_EQ(static_cast<float>(file.number("llama.attention.layer_norm_rms_epsilon")),
                  static_cast<float>(config.norm_eps));
  EXPECT_EQ(file.string("tokenizer.ggml.model"), "gpt2") << "256 tokens and no tokenizer: each byte is one";
  EXPECT_EQ(file.values.at("tokenizer.ggml.tokens").texts.size(), 256u);
  EXPECT_EQ(file.values.at("llama.block_count").type, 4u) << "uint32";
  EXPECT_EQ(file.values.at("llama.rope.freq_base").type, 6u) << "float32";
}

TEST(Gguf, rotary_scalings_become_llama_cpps) {
  const GgufFile linear = export_gguf(golden_folder("open/llama_linear"), GgufType::f32).file;
  EXPECT_EQ(linear.string("llama.rope.scaling.type"), "linear");
  EXPECT_TRUE(linear.tensors.contains("blk.0.attn_q.bias"));
  const GgufFile yarn = export_gguf(golden_folder("open/llama_yarn"), GgufType::f32).file;
  EXPECT_EQ(yarn.string("llama.rope.scaling.type"), "yarn");
  EXPECT_GT(yarn.number("llama.rope.scaling.original_context_length"), 0);
  const GgufFile llama3 = export_gguf(golden_folder("open/llama3"), GgufType::f32).file;
  const std::vector<double> factors = llama3.read("rope_freqs.weight");
  EXPECT_EQ(factors.front(), 1) << "the highest frequency stays";
  EXPECT_GT(factors.back(), 1);
  const GgufFile longrope = export_gguf(golden_folder("open/phi3_longrope"), GgufType::f32).file;
  EXPECT_EQ(longrope.read("rope_factors_long.weight").size(), longrope.read("rope_factors_short.weight").size());
  EXPECT_FALSE(longrope.values.contains("phi3.rope.scaling.factor")) << "llama.cpp would stretch twice";
}

TEST(Gguf, windows_that_llama_cpp_cannot_see_are_said) {
  const Exported mistral = export_gguf(golden_folder("open/mistral"), GgufType::f32);
  EXPECT_THAT(mistral.report.notes, ::testing::Contains(HasSubstr("ignores the sliding window")));
  const Exported gemma = export_gguf(golden_folder("open/gemma3_text"), GgufType::f32);
  EXPECT_EQ(gemma.file.number("gemma3.attention.sliding_window_pattern"), 2) << "six are taken for granted";
  EXPECT_EQ(gemma.file.number("gemma3.rope.freq_base_swa"), 100);
  EXPECT_THAT(gemma.report.notes, ::testing::Not(::testing::Contains(HasSubstr("window"))));
}

TEST(Gguf, a_scale_of_attention_that_is_not_by_head_dim_goes_into_the_queries) {
  const std::string folder = golden_folder("open/gemma2");
  const ModelConfig config = ModelConfig::from_folder(folder);
  const double factor = config.attention_scale * std::sqrt(static_cast<double>(config.head_dim));
  ASSERT_GT(std::abs(factor - 1), 0.01);
  const GgufFile file = export_gguf(folder, GgufType::f32).file;
  std::vector<double> want = source_of(folder, "model.layers.0.self_attn.q_proj.weight");
  for (double& x : want) x = static_cast<float>(x) * static_cast<float>(factor);
  EXPECT_EQ(file.read("blk.0.attn_q.weight"), want);
}

TEST(Gguf, experts_are_stacked_and_norms_have_their_one) {
  const std::string mixtral = golden_folder("open/mixtral");
  const GgufFile file = export_gguf(mixtral, GgufType::f32).file;
  std::vector<double> stacked;
  for (int expert = 0; expert < static_cast<int>(file.number("llama.expert_count")); ++expert) {
    const std::vector<double> one =
        source_of(mixtral, fmt::format("model.layers.0.block_sparse_moe.experts.{}.w2.weight", expert));
    stacked.insert(stacked.end(), one.begin(), one.end());
  }
  EXPECT_EQ(file.read("blk.0.ffn_down_exps.weight"), stacked);
  EXPECT_EQ(file.read("blk.0.ffn_gate_inp.weight"), source_of(mixtral, "model.layers.0.block_sparse_moe.gate.weight"));

  const std::string gemma = golden_folder("open/gemma2");
  const GgufFile normed = export_gguf(gemma, GgufType::q8_0).file;
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"input_layernorm", "attn_norm"},
                                                        {"post_attention_layernorm", "post_attention_norm"},
                                                        {"pre_feedforward_layernorm", "ffn_norm"},
                                                        {"post_feedforward_layernorm", "post_ffw_norm"}}) {
    std::vector<double> want = source_of(gemma, "model.layers.0." + from + ".weight");
    for (double& x : want) x = static_cast<float>(x) + 1.0f;
    EXPECT_EQ(normed.read("blk.0." + to + ".weight"), want) << to;
  }
  EXPECT_GT(normed.number("gemma2.attn_logit_softcapping"), 0);
  EXPECT_GT(normed.number("gemma2.attention.sliding_window"), 0);
}

/// Rows become columns.
std::vector<double> transposed(const std::vector<double>& x, size_t columns) {
  const size_t rows = x.size() / columns;
  std::vector<double> y(x.size());
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) y[j * rows + i] = x[i * columns + j];
  return y;
}

TEST(Gguf, gpt2_has_its_matrices_turned_and_its_positions_in_f32) {
  const std::string folder = golden_folder("open/gpt2");
  const Exported exported = export_gguf(folder, GgufType::f16);
  const GgufFile& file = exported.file;
  EXPECT_EQ(file.string("general.architecture"), "gpt2");
  EXPECT_FLOAT_EQ(static_cast<float>(file.number("gpt2.attention.layer_norm_epsilon")), 1e-5f);
  EXPECT_EQ(file.number("gpt2.context_length"), 64);
  EXPECT_FALSE(file.values.contains("gpt2.rope.freq_base"));
  EXPECT_EQ(file.read("position_embd.weight"), source_of(folder, "transformer.wpe.weight"));
  EXPECT_EQ(file.tensors.at("position_embd.weight").type, 0u);
  EXPECT_EQ(file.read("blk.1.attn_qkv.bias"), source_of(folder, "transformer.h.1.attn.c_attn.bias"));
  EXPECT_EQ(file.read("output_norm.bias"), source_of(folder, "transformer.ln_f.bias"));
  for (const auto& [from, to, columns] :
       {std::tuple("attn.c_attn", "attn_qkv", 144), std::tuple("attn.c_proj", "attn_output", 48),
        std::tuple("mlp.c_fc", "ffn_up", 192), std::tuple("mlp.c_proj", "ffn_down", 48)}) {
    const auto width = static_cast<size_t>(columns);
    const std::vector<double> want =
        transposed(source_of(folder, fmt::format("transformer.h.1.{}.weight", from)), width);
    const std::string name = fmt::format("blk.1.{}.weight", to);
    EXPECT_THAT(file.tensors.at(name).dims, ElementsAre(want.size() / width, width)) << "innermost first";
    EXPECT_EQ(file.tensors.at(name).type, 1u);
    expect_near(file.read(name), want, name, 0x1p-11, std::vector<double>(want.size(), 0.0));
  }
  EXPECT_EQ(export_gguf(folder, GgufType::f32).file.read("blk.0.attn_qkv.weight"),
            transposed(source_of(folder, "transformer.h.0.attn.c_attn.weight"), 144));
}

TEST(Gguf, gpt_neox_has_the_queries_of_all_heads_before_the_keys_and_these_before_the_values) {
  const std::string folder = golden_folder("open/gpt_neox");
  const Exported exported = export_gguf(folder, GgufType::f32);
  const GgufFile& file = exported.file;
  EXPECT_EQ(file.string("general.architecture"), "gptneox");
  EXPECT_EQ(file.number("gptneox.use_parallel_residual"), 1);
  EXPECT_EQ(file.number("gptneox.rope.dimension_count"), 6) << "half of each head of 12";
  EXPECT_THAT(exported.report.notes, ::testing::Contains(HasSubstr("approximates gelu by tanh")));
  for (const auto& [suffix, row] : {std::pair("weight", size_t{48}), std::pair("bias", size_t{1})}) {
    const std::vector<double> x =
        source_of(folder, fmt::format("gpt_neox.layers.1.attention.query_key_value.{}", suffix));
    std::vector<double> want(x.size());
    for (size_t head = 0; head < 4; ++head)
      for (size_t part = 0; part < 3; ++part)
        for (size_t i = 0; i < 12 * row; ++i)
          want[(part * 4 + head) * 12 * row + i] = x[(head * 3 + part) * 12 * row + i];
    EXPECT_EQ(file.read(fmt::format("blk.1.attn_qkv.{}", suffix)), want);
  }
  EXPECT_EQ(file.read("output.weight"), source_of(folder, "embed_out.weight"));
}

TEST(Gguf, a_gpt_that_llama_cpp_does_not_compute_is_refused) {
  nlohmann::json config = nlohmann::json::parse(test::read_bytes(golden_folder("open/gpt_neox") + "/config.json"));
  std::vector<std::string> notes;
  const auto refusal = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json other = config;
    other[key] = value;
    return message_of<ConfigError>([&] { gguf_metadata(ModelConfig::from_json(other), 1, "x", notes); });
  };
  EXPECT_THAT(refusal("tie_word_embeddings", true), HasSubstr("has a head of its own, this model does not"));
  EXPECT_THAT(refusal("attention_bias", false), HasSubstr("has biases in every projection"));
  EXPECT_THAT(refusal("hidden_act", "silu"), HasSubstr("computes gelu"));
}

TEST(Gguf, a_name_that_llama_cpp_takes_for_microsofts_is_changed_unless_the_markers_are_there) {
  std::vector<std::string> notes;
  GgufMetadata tokenizer{{"tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "</s>", "<unk>"}}};
  EXPECT_EQ(gguf_name("my-Phi-3-phi3", tokenizer, notes), "my-Phi_3-phi_3");
  EXPECT_THAT(notes, ElementsAre(HasSubstr("calls the model \"my-Phi_3-phi_3\", as llama.cpp does not load")));
  EXPECT_EQ(gguf_name("phi-4", tokenizer, notes), "phi-4");
  std::get<std::vector<std::string>>(tokenizer[0].second).push_back("<|endoftext|>");
  EXPECT_EQ(gguf_name("Phi-3-mini", tokenizer, notes), "Phi-3-mini") << "its white space depends on the name";
  EXPECT_EQ(notes.size(), 1u);
  EXPECT_EQ(export_gguf(golden_folder("open/phi3"), GgufType::f32).file.string("general.name"), "phi_3");
}

class GgufFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(GgufFamilies, have_a_place_for_every_parameter) {
  const std::string folder = golden_folder("open/" + GetParam());
  const GgufFile file = export_gguf(folder, GgufType::q8_0).file;
  const ModelConfig config = ModelConfig::from_folder(folder);
  const std::string architecture = file.string("general.architecture");
  EXPECT_EQ(file.number(architecture + ".block_count"), config.num_layers);
  uint64_t elements = 0;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with("rope_")) continue;
    uint64_t count = 1;
    for (const uint64_t dim : tensor.dims) count *= dim;
    elements += count;
  }
  EXPECT_EQ(elements, static_cast<uint64_t>(config.parameter_count()));
  EXPECT_TRUE(file.tensors.contains("token_embd.weight"));
}

INSTANTIATE_TEST_SUITE_P(Golden, GgufFamilies,
                         ::testing::Values("llama", "llama3", "llama_yarn", "mistral", "mixtral", "qwen2", "qwen2_swa",
                                           "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi3",
                                           "phi3_longrope", "olmo2", "gpt2", "gpt2_untied", "gpt_neox", "gpt_oss",
                                           "deepseek_v3", "glm4_moe"),
                         [](const auto& info) { return info.param; });

/// A small llama with this tokenizer.json beside it.
std::filesystem::path model_with(const TempFolder& folder, const std::string& tokenizer, int64_t vocab_size) {
  nlohmann::json config = nlohmann::json::parse(test::read_bytes(golden_folder("open/llama") + "/config.json"));
  config["vocab_size"] = vocab_size;
  folder.write("m/config.json", config.dump());
  folder.write("m/tokenizer.json", tokenizer);
  test::write_weights(folder / "m", ModelConfig::from_folder(folder / "m"));
  return folder / "m";
}

TEST(Gguf, a_byte_level_tokenizer_keeps_its_tokens_merges_and_markers) {
  TempFolder folder;
  const std::string r50k = test::read_bytes(test::golden_root() + "/tokenizer/r50k_base.tokenizer.json");
  const nlohmann::json json = nlohmann::json::parse(r50k);
  const Exported exported = export_gguf(model_with(folder, r50k, 50260), GgufType::f16);
  const GgufFile& file = exported.file;
  EXPECT_EQ(file.string("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(file.string("tokenizer.ggml.pre"), "gpt-2");
  const std::vector<std::string>& tokens = file.values.at("tokenizer.ggml.tokens").texts;
  ASSERT_EQ(tokens.size(), 50260u) << "as many as the model has";
  for (const auto& [token, id] : json["model"]["vocab"].items()) ASSERT_EQ(tokens[id.get<size_t>()], token);
  EXPECT_EQ(tokens[50256], "<|endoftext|>");
  EXPECT_EQ(tokens[50259], "[PAD50259]");
  const std::vector<double>& types = file.values.at("tokenizer.ggml.token_type").numbers;
  EXPECT_EQ(types[0], 1);
  EXPECT_EQ(types[50256], 3) << "a marker";
  EXPECT_EQ(types[50259], 5) << "unused";
  EXPECT_EQ(file.values.at("tokenizer.ggml.merges").texts.size(), json["model"]["merges"].size());
}

TEST(Gguf, a_sentencepiece_tokenizer_keeps_the_order_of_its_merges_as_scores) {
  TempFolder folder;
  const std::string json = R"({"added_tokens":[{"id":1,"content":"<s>","special":true}],
    "normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},
      {"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
    "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},
      {"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[1]}}},
    "model":{"type":"BPE","byte_fallback":true,"unk_token":"<unk>","merges":["a b","▁ ab"],
      "vocab":{"<unk>":0,"<s>":1,"<0x41>":2,"a":3,"b":4,"▁":5,"ab":6,"▁ab":7}}})";
  const GgufFile file = export_gguf(model_with(folder, json, 8), GgufType::f16).file;
  EXPECT_EQ(file.string("tokenizer.ggml.model"), "llama");
  EXPECT_THAT(file.values.at("tokenizer.ggml.tokens").texts,
              ElementsAre("<unk>", "<s>", "<0x41>", "a", "b", "▁", "ab", "▁ab"));
  EXPECT_THAT(file.values.at("tokenizer.ggml.token_type").numbers, ElementsAre(2, 3, 6, 1, 1, 1, 1, 1));
  const std::vector<double>& scores = file.values.at("tokenizer.ggml.scores").numbers;
  EXPECT_GT(scores[6], scores[7]);
  EXPECT_GT(scores[7], scores[3]);
  EXPECT_EQ(file.number("tokenizer.ggml.add_space_prefix"), 1);
  EXPECT_EQ(file.number("tokenizer.ggml.bos_token_id"), 1);
  EXPECT_EQ(file.number("tokenizer.ggml.add_bos_token"), 1);
}

TEST(Gguf, the_chat_template_and_the_ends_of_documents_and_of_answers_are_keys) {
  const TempFolder folder;
  const std::vector<std::string> markers{"<|im_start|>", "<|im_end|>"};
  export_tokenizer({"bytes", markers, chat_source(ChatFormat::chatml, *make_tokenizer("bytes", markers)).jinja},
                   folder.path());
  const std::string json = test::read_bytes(folder / "tokenizer.json");
  folder.write("m/tokenizer_config.json", test::read_bytes(folder / "tokenizer_config.json"));
  const GgufFile file = export_gguf(model_with(folder, json, 258), GgufType::f16).file;
  EXPECT_THAT(file.string("tokenizer.chat_template"), HasSubstr("'<|im_start|>assistant\\n'"));
  EXPECT_EQ(file.number("tokenizer.ggml.eos_token_id"), 0);
  EXPECT_EQ(file.number("tokenizer.ggml.eot_token_id"), 257);
  const std::vector<std::string>& tokens = file.values.at("tokenizer.ggml.tokens").texts;
  EXPECT_EQ(tokens[0], "\u0100") << "a byte 0 would end llama.cpp's string";
  EXPECT_EQ(tokens[257], "<|im_end|>");
  EXPECT_EQ(file.string("tokenizer.ggml.pre"), "gpt-2");
}

TEST(Gguf, a_model_without_a_vocabulary_says_so) {
  TempFolder folder;
  const Exported exported =
      export_gguf(model_with(folder, R"({"model":{"type":"Unigram","vocab":[["<unk>",0],["a",-1]],"unk_id":0}})", 7),
                  GgufType::f16);
  EXPECT_EQ(exported.file.string("tokenizer.ggml.model"), "no_vocab");
  EXPECT_THAT(exported.report.notes, ElementsAre(HasSubstr("has no vocabulary")));
}

}  // namespace
}  // namespace nought::gguf_test

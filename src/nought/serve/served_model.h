// ServedModel: what a server knows of its model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/chat/chat_template.h"
#include "nought/infer/inference_engine.h"
#include "nought/serve/reply_form.h"
#include "nought/text/tokenizer.h"

namespace nought {

struct ServedModel {
  std::string name;
  const Tokenizer& tokenizer;
  const ChatTemplate* chat = nullptr;  // null: it has none, for the reason of no_chat
  std::string no_chat = {};
  SamplingParameters sampling = {};         // what counts where a request says nothing
  std::vector<int32_t> text_stop_ids = {};  // the tokens that end a text, and a reply of a chat
  std::vector<int32_t> chat_stop_ids = {};
  std::vector<std::string> chat_stops = {};  // markers of the template that are no tokens
  ToolForm tool_form = ToolForm::none;
  ReasoningForm reasoning_form = ReasoningForm::none;
  PoolingMode pooling = PoolingMode::mean;  // how embeddings are made
  int64_t vocab_size = 0, hidden_size = 0, max_context = 0, created = 0;
};

}  // namespace nought

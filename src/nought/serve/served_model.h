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

/// One of several adapters that are served beside the model: requests choose it by its name, as a model of its own.
struct ServedAdapter {
  std::string name, folder;
};

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
  std::vector<ServedAdapter> adapters = {};  // in the order of ModelAdapter::choices

  /// Its name, or that of an adapter.
  const std::string& name_of(int32_t adapter) const {
    return adapter == kNoAdapter ? name : adapters[static_cast<size_t>(adapter)].name;
  }
};

}  // namespace nought

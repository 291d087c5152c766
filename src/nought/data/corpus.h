// Corpus: files of text, JSON lines or conversations, cut into portions that can be encoded at the same time.
//
// Where portions are cut is a function of the input alone, and where a document would have to be cut, it is where that
// changes no token. So neither the number of threads nor an interruption shows in what comes out.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nought/data/chat_template.h"
#include "nought/data/tokenizer.h"
#include "nought/io/mapped_file.h"

namespace nought {

enum class CorpusFormat { text, jsonl, chat };

template <>
struct EnumNames<CorpusFormat> {
  static constexpr std::array<std::pair<CorpusFormat, std::string_view>, 3> value{
      {{CorpusFormat::text, "text"}, {CorpusFormat::jsonl, "jsonl"}, {CorpusFormat::chat, "chat"}}};
};

struct CorpusOptions {
  std::optional<CorpusFormat> format;      // none: by the file's name, .jsonl or else text
  std::string field = "text";              // of a line's object, in which the text of a document stands
  std::string separator;                   // text files: what stands between documents; "": a file is one
  ChatFormat chat = ChatFormat::chatml;    // of conversations
  size_t portion_bytes = size_t{1} << 20;  // at least
};

/// Where in the input something is: byte `offset` of file `input`, in its line `line`, from 0.
struct CorpusPlace {
  size_t input = 0, offset = 0;
  int64_t line = 0;
};

struct Portion {
  std::shared_ptr<const MappedFile> file;  // that holds the bytes
  std::string name;                        // of the file
  CorpusFormat format = CorpusFormat::text;
  std::string_view bytes;
  CorpusPlace begin, end;
  bool begins_document = true, ends_document = true;  // false: the portion before or behind has more of it
};

/// The first place at or behind `from` where a document may be cut; npos if there is none.
using CutPoint = std::function<size_t(std::string_view text, size_t from)>;

/// Cuts files into portions, one after the other.
class CorpusReader {
 public:
  /// Starts at `place`, where a document begins.
  CorpusReader(std::vector<std::filesystem::path> files, CorpusOptions options, CutPoint cut_point,
               CorpusPlace place = {});
  /// None at the end of the input. IoError.
  std::optional<Portion> next();

 private:
  CorpusFormat format_of(const std::filesystem::path& file) const;
  /// Where the portion that begins at `begin` ends: after a line, after a separator, or within a document.
  size_t end_of_lines(std::string_view text, size_t begin) const;
  size_t end_of_text(std::string_view text, size_t begin, bool& ends_document) const;

  std::vector<std::filesystem::path> files_;
  CorpusOptions options_;
  CutPoint cut_point_;
  CorpusPlace place_;
  bool within_document_ = false;
  std::shared_ptr<const MappedFile> file_;
};

/// Takes what a portion holds.
class CorpusVisitor {
 public:
  virtual ~CorpusVisitor() = default;
  /// A document, or a part of one: the flags tell if it begins and ends here.
  virtual void text(std::string_view text, bool begins, bool ends) = 0;
  virtual void conversation(std::span<const ChatMessage> messages) = 0;
};

/// Hands a portion's documents over, in order. ConfigError that names the file and the line for what is none, or where
/// the visitor throws one.
void visit_documents(const Portion& portion, const CorpusOptions& options, CorpusVisitor& visitor);

/// The tokens of a portion.
struct EncodedPortion {
  std::vector<int32_t> ids;
  std::vector<uint8_t> targets;  // 1 or 0 for each token; empty: all of them are
  std::vector<size_t> starts;    // where in ids documents begin; what lies before the first continues another
};

/// Thread safe. Throws as visit_documents.
EncodedPortion encode_portion(const Portion& portion, const CorpusOptions& options, const Tokenizer& tokenizer);
/// Where a tokenizer lets documents be cut; it must outlive what this gives.
CutPoint cut_point_of(const Tokenizer& tokenizer);

/// The messages of {"messages": [{"role": ..., "content": ...}, ...]}, or of {"conversations": [{"from": ..., "value":
/// ...}, ...]}. ConfigError.
std::vector<ChatMessage> read_conversation(const Json& json);

}  // namespace nought

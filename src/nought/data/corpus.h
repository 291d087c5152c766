// CorpusReader: cuts files of text, JSON lines or conversations into portions that can be encoded in parallel.
//
// The cuts are a function of the input alone. A document is cut only where that changes no token. So the result does
// not depend on the number of threads, nor on an interruption.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nought/chat/chat_template.h"
#include "nought/chat/conversation.h"
#include "nought/chat/preference.h"
#include "nought/data/corpus_kind.h"
#include "nought/io/mapped_file.h"
#include "nought/text/tokenizer.h"

namespace nought {

struct CorpusOptions {
  std::optional<CorpusFormat> format = {};  // not given: by the file, see corpus_format()
  std::string field = "text";               // jsonl: the key that holds the text
  std::string separator = {};               // text: what separates documents; "": a file is one document
  std::optional<ChatSource> chat = {};      // chat: the template; not given: by the tokenizer's markers
  bool parse_special_tokens = false;        // text and jsonl: see EncodeOptions::specials
  size_t portion_bytes = size_t{1} << 20;   // the least size of a portion
};

/// What a file holds, see corpus_kind(). IoError. ConfigError for what is not read.
CorpusFormat corpus_format(const std::filesystem::path& file, const CorpusOptions& options);
/// The options with the chat template of conversations among the files, see chat_source_for(), which has been read. As
/// they are if none is wanted and no file holds conversations. IoError. ConfigError also if the tokenizer lacks a
/// marker of a notation.
CorpusOptions with_template(CorpusOptions options, std::span<const std::filesystem::path> files,
                            const std::string& wanted, const std::filesystem::path& tokenizer_path,
                            const Tokenizer& tokenizer);
/// What was found by looking into files, one line for each kind, for the user. Nothing is said of plain text, unless
/// there is a chat template. ConfigError for JSON of no known form beside one.
std::vector<std::string> describe_formats(std::span<const std::filesystem::path> files, const CorpusOptions& options,
                                          const Tokenizer& tokenizer);

/// A place in the input: byte `offset` of file number `input`, which is in its line `line`. All count from 0.
struct CorpusPlace {
  size_t input = 0, offset = 0;
  int64_t line = 0;
};

/// A stretch of one file.
struct Portion {
  std::shared_ptr<const MappedFile> file;  // the file, which keeps `bytes` valid
  std::string name;                        // the file's name
  CorpusFormat format = CorpusFormat::text;
  RecordLayout layout = RecordLayout::lines;  // of records
  std::string_view bytes;
  CorpusPlace begin, end;
  bool begins_document = true;  // false: its first document begins in an earlier portion
  bool ends_document = true;    // false: its last document continues in the next portion
};

/// The first place at or behind `from` where a document may be cut; npos if there is none.
using CutPoint = std::function<size_t(std::string_view text, size_t from)>;

/// Cuts files into portions, one after the other.
class CorpusReader {
 public:
  /// Starts at `place`, where a document must begin. `cut_point` says where documents may be cut.
  CorpusReader(std::vector<std::filesystem::path> files, CorpusOptions options, CutPoint cut_point,
               CorpusPlace place = {});
  /// The next portion; empty at the end of the input. IoError.
  std::optional<Portion> next();

 private:
  /// Where the portion that begins at `begin` ends: after a record, after a separator, or within a document.
  size_t end_of_records(std::string_view text, size_t begin) const;
  size_t end_of_text(std::string_view text, size_t begin, bool& ends_document) const;

  std::vector<std::filesystem::path> files_;
  CorpusOptions options_;
  CutPoint cut_point_;
  CorpusPlace place_;
  bool within_document_ = false;
  std::shared_ptr<const MappedFile> file_;
  CorpusKind kind_;  // of the file
};

/// Receives the documents of a portion.
class CorpusVisitor {
 public:
  virtual ~CorpusVisitor() = default;
  /// A document, or a part of one. The flags say whether it begins and whether it ends here.
  virtual void text(std::string_view text, bool begins, bool ends) = 0;
  virtual void conversation(const ChatRecord& record) = 0;
  /// ConfigError unless the visitor is one for pairs, for answers with labels, for texts with scores, for prompts, or
  /// for answers that are imitated.
  virtual void preference(const PreferenceRecord& record);
  virtual void labelled(const LabelledRecord& record);
  virtual void scored(const ScoredRecord& record);
  virtual void prompt(const PromptRecord& record);
  virtual void completed(const LabelledRecord& record);
};

/// Passes a portion's documents to the visitor, in order. For a malformed line, or one for which the visitor throws a
/// ConfigError, the ConfigError names file and line.
void visit_documents(const Portion& portion, const CorpusOptions& options, CorpusVisitor& visitor);

/// The tokens of a portion.
struct EncodedPortion {
  std::vector<int32_t> ids;
  std::vector<uint8_t> targets;  // 1 for each token that is a target, else 0; empty: all tokens are targets
  std::vector<size_t> starts;    // indices of ids at which documents begin; earlier ids continue the last document
};

/// The template of conversations: that of the options, or by the tokenizer's markers. ConfigError.
ChatTemplate template_of(const CorpusOptions& options, const Tokenizer& tokenizer);
/// Encodes a portion. Thread safe. Throws as visit_documents() does.
EncodedPortion encode_portion(const Portion& portion, const CorpusOptions& options, const Tokenizer& tokenizer);
/// The tokenizer's cut_point() as a CutPoint. The tokenizer must outlive it.
CutPoint cut_point_of(const Tokenizer& tokenizer);

}  // namespace nought

#include "graph/serialized_batch.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace oxibonsai::graph {
namespace {

// Reads numbers one after the other, never past the end.
class Reader {
 public:
  explicit Reader(const std::vector<int32_t>& words) : words_(words) {}

  int32_t next() {
    if (at_ == words_.size()) throw RequestError("the words of a batch end too early");
    return words_[at_++];
  }
  std::vector<int32_t> list() {
    const int32_t count = next();
    if (count < 0 || static_cast<size_t>(count) > words_.size() - at_)
      throw RequestError("a list in the words of a batch is longer than they are");
    const auto begin = words_.begin() + static_cast<std::ptrdiff_t>(at_);
    at_ += static_cast<size_t>(count);
    return {begin, begin + count};
  }
  bool at_end() const { return at_ == words_.size(); }

 private:
  const std::vector<int32_t>& words_;
  size_t at_ = 0;
};

void put(std::vector<int32_t>* words, const std::vector<int32_t>& list) {
  words->push_back(static_cast<int32_t>(list.size()));
  words->insert(words->end(), list.begin(), list.end());
}

bool has_tokens_only(const Batch& batch) {
  return batch.inputs.empty() && batch.segments.empty() && batch.grid_width == 0;
}

}  // namespace

std::vector<int32_t> to_words(const Batch& batch) {
  if (!has_tokens_only(batch))
    throw UnsupportedError(
        "a step with more inputs than tokens, such as pictures, cannot be shared by several "
        "processes");
  std::vector<int32_t> words;
  words.push_back(static_cast<int32_t>(batch.spans.size()));
  for (const Span& s : batch.spans) {
    words.insert(words.end(), {s.first, s.count, s.pool, s.slot, s.visible, s.encoded});
    put(&words, s.pages);
    put(&words, s.row_slots);
    words.push_back(static_cast<int32_t>(s.blocks.size()));
    for (const auto& [first, last] : s.blocks) words.insert(words.end(), {first, last});
  }
  put(&words, batch.tokens);
  put(&words, batch.outputs);
  words.push_back(batch.axes);
  put(&words, batch.positions);
  return words;
}

Batch from_words(const std::vector<int32_t>& words) {
  Reader read(words);
  Batch batch;
  for (int32_t spans = read.next(); spans > 0; --spans) {
    Span s;
    s.first = read.next();
    s.count = read.next();
    if (s.count < 1) throw RequestError("a span in the words of a batch has no rows");
    s.pool = read.next();
    s.slot = read.next();
    s.visible = read.next();
    s.encoded = read.next();
    s.pages = read.list();
    s.row_slots = read.list();
    for (int32_t blocks = read.next(); blocks > 0; --blocks) {
      const int32_t first = read.next();
      s.blocks.emplace_back(first, read.next());
    }
    batch.spans.push_back(std::move(s));
  }
  batch.tokens = read.list();
  batch.outputs = read.list();
  batch.axes = read.next();
  batch.positions = read.list();
  if (!read.at_end()) throw RequestError("the words of a batch go on behind its end");
  return batch;
}

std::vector<Batch> pieces(const Batch& batch, int64_t rows) {
  if (rows < 1) throw RequestError("a piece of a batch has at least one row");
  bool divisible = has_tokens_only(batch) && batch.positions.empty() &&
                   std::is_sorted(batch.outputs.begin(), batch.outputs.end());
  for (const Span& s : batch.spans)
    divisible = divisible && s.blocks.empty() && s.row_slots.empty() && s.visible == 0;
  if (!divisible || batch.rows() <= rows) return {batch};
  std::vector<Batch> all;
  int64_t row = 0;  // of the whole batch
  for (const Span& whole : batch.spans) {
    for (int32_t done = 0; done < whole.count;) {
      if (all.empty() || all.back().rows() == rows) all.emplace_back();
      Batch& piece = all.back();
      Span s = whole;
      s.first = whole.first + done;
      s.count = static_cast<int32_t>(std::min<int64_t>(whole.count - done, rows - piece.rows()));
      piece.spans.push_back(std::move(s));
      done += piece.spans.back().count;
    }
  }
  auto output = batch.outputs.begin();
  for (Batch& piece : all) {
    const int64_t count = piece.rows();
    if (!batch.tokens.empty())
      piece.tokens.assign(batch.tokens.begin() + row, batch.tokens.begin() + row + count);
    for (; output != batch.outputs.end() && *output < row + count; ++output)
      piece.outputs.push_back(static_cast<int32_t>(*output - row));
    row += count;
  }
  return all;
}

}  // namespace oxibonsai::graph

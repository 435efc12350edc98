#pragma once

#include "graph/check.h"
#include "graph/key_pattern.h"

namespace oxibonsai::graph {

// Writes keys and values of the batch's tokens to the pages of a layer of the cache.
// Where PagedLayer::value_in_key says that keys hold the values, there is no v.
struct StoreKv {
  static constexpr const char* kName = "store_kv";
  static constexpr const char* kDoc = "Write the tokens' keys and values to the pages of a layer.";
  ValueId k = kNoValue;  // [tokens, kv_heads * key_dim]
  ValueId v = kNoValue;  // [tokens, kv_heads * value_dim]
  int layer = 0;         // of StateSpec::paged

  template <class F>
  void fields(F& f) {
    f.reads("k", k).reads("v", v, kNullable).state("layer", layer);
  }
};

// What comes before attention, in one op: heads of q and k are normalised (RmsNorm) where there are
// weights for that, and rotated (Rope); k and v go to the pages (StoreKv). Of lowered graphs alone
// (graph/fusion.h).
struct PrepareHeads {
  static constexpr const char* kName = "prepare_heads";
  ValueId q = kNoValue, k = kNoValue, v = kNoValue;
  ValueId table = kNoValue;   // of the rotation
  Vector q_weight, k_weight;  // of each head or of all heads of a row; null: no norm
  float q_eps = 0.0f, k_eps = 0.0f;
  bool interleaved = false;
  int layer = 0;           // of StateSpec::paged
  ValueId out = kNoValue;  // q

  template <class F>
  void fields(F& f) {
    f.reads("q", q)
        .reads("k", k)
        .reads("v", v)
        .reads("table", table)
        .takes("q_weight", q_weight)
        .takes("k_weight", k_weight)
        .takes("q_eps", q_eps)
        .takes("k_eps", k_eps)
        .takes("interleaved", interleaved)
        .state("layer", layer)
        .makes("out", out);
  }
};

// Which positions of the pages a query may see, in a sequence that begins with the tokens of an
// encoder (Span::encoded).
enum class KeyPart : uint8_t {
  kAll,
  kEncoded,  // those of the encoder, all of them (cross-attention)
  kOwn,      // those behind them
};

// Softmax attention of q over the pages of a layer, which hold the batch's own tokens already. A
// query sees the positions up to its own, or to the end of the block that it lies in
// (Span::blocks); [tokens, heads * value_dim].
struct Attend {
  static constexpr const char* kName = "attend";
  static constexpr const char* kDoc =
      "Return attention of q over the pages of a layer: [tokens, heads * value_dim].";
  ValueId q = kNoValue;  // [tokens, heads * key_dim]
  int layer = 0;
  int heads = 0;
  float scale = 1.0f;    // of the scores
  int window = 0;        // keys that a query may look back on, itself counted; 0: all
  float softcap = 0.0f;  // of the scores; 0: none
  Vector slopes;         // [heads] or null: linear biases, -slope * |key - query position| a score
  Vector sinks;          // [heads] or null: the score of one more key each, whose value is zero
  int chunk = 0;         // a query sees none before the multiple of this at or below it; 0: all
  // [heads, 2 * reach + 1] or null: joins a score, by key - query position within -reach and reach.
  Vector position_bias = {};
  KeyPart part = KeyPart::kAll;
  KeyPattern pattern = {};
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("q", q)
        .state("layer", layer)
        .takes("heads", heads)
        .takes("scale", scale)
        .takes("window", window, kOptional)
        .takes("softcap", softcap, kOptional)
        .takes("slopes", slopes, kOptional)
        .takes("sinks", sinks, kOptional)
        .takes("chunk", chunk, kOptional)
        .takes("position_bias", position_bias, kOptional)
        .takes("part", part, kOptional)
        .takes("dilation", pattern.dilation, kOptional)
        .takes("global_tokens", pattern.global_tokens, kOptional)
        .takes("block_size", pattern.block_size, kOptional)
        .takes("block_stride", pattern.block_stride, kOptional)
        .takes("head_step", pattern.head_step, kOptional)
        .takes("first_head", pattern.first_head, kOptional)
        .makes("out", out);
  }
};

// Positions begin <= i < end.
struct KeyRange {
  int32_t begin, end;
  bool empty() const { return begin >= end; }
};

// Which queries of AttendLocal a mask lets see keys; the results of the others are zeros.
enum class QueryPart : uint8_t {
  kAll,
  kGlobal,  // the global tokens, which see all
  kOthers,  // the others, which see the global tokens besides their window
};

// Which tokens of its segment a query of AttendLocal sees.
struct LocalMask {
  // Those before it and itself, but none behind the first Span::visible: padding. Not with
  // segments.
  bool causal = false;
  int window = 0;  // how far from a query, on each side, a key may be; 0: any distance
  // The first tokens of each segment (Longformer); only with parts of the queries.
  int global_tokens = 0;
  QueryPart queries = QueryPart::kAll;
  // Blocks of tokens (BigBird); 0: none. Those of the first and of the last block see all. The
  // others see their own block, its neighbours, the last block, and the first 1 + random_blocks
  // times. In a segment of (5 + 2 * random_blocks) * block_size tokens or fewer all see all.
  int block_size = 0;
  int random_blocks = 0;

  // What a query sees is the concatenation of so many ranges; an empty one is {0, 0}.
  int ranges() const;
  // Range `index` of the query at `position` of a segment of `count` tokens.
  KeyRange range(int32_t position, int32_t count, int32_t visible, int index) const;
};
bool operator<(const LocalMask& a, const LocalMask& b);

// Softmax attention among the tokens that one sequence has in the batch, or one of its segments
// (Batch::segments); nothing is kept. For encoders.
struct AttendLocal {
  static constexpr const char* kName = "attend_local";
  static constexpr const char* kDoc =
      "Return attention among the tokens of a sequence, or of its segments; nothing is kept.";
  ValueId q = kNoValue;  // [tokens, heads * head_dim]
  ValueId k = kNoValue;  // [tokens, kv_heads * head_dim]
  ValueId v = kNoValue;
  int head_dim = 0;
  float scale = 1.0f;
  std::string segments = {};  // name; empty: a sequence is one
  LocalMask mask = {};
  Vector slopes = {};         // as in Attend
  Vector position_bias = {};  // as in Attend
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("q", q)
        .reads("k", k)
        .reads("v", v)
        .takes("head_dim", head_dim)
        .takes("scale", scale)
        .takes("segments", segments, kOptional)
        .takes("causal", mask.causal, kOptional)
        .takes("window", mask.window, kOptional)
        .takes("slopes", slopes, kOptional)
        .takes("position_bias", position_bias, kOptional)
        .takes("global_tokens", mask.global_tokens, kOptional)
        .takes("queries", mask.queries, kOptional)
        .takes("block_size", mask.block_size, kOptional)
        .takes("random_blocks", mask.random_blocks, kOptional)
        .makes("out", out);
  }
};

std::vector<Value> infer(const StoreKv& op, const Checker& c);
std::vector<Value> infer(const PrepareHeads& op, const Checker& c);
std::vector<Value> infer(const Attend& op, const Checker& c);
std::vector<Value> infer(const AttendLocal& op, const Checker& c);

}  // namespace oxibonsai::graph

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/weight.h"

namespace oxibonsai::program {

class InputSums;

enum class OpKind {
  kEmbed,      // out[0] = rows of weights[0] for the tokens of the batch
  kPositions,  // out[0] = rows of weights[0] for the positions of the batch
  kSelect,     // out[0] = the rows of in[0] that want an output; rows from here on are output rows
  kRmsNorm,    // out[0] = rms_norm(in[0], vectors[0]) over `groups` equal parts of a row
  kLayerNorm,  // out[0] = layer_norm(in[0], vectors[0], vectors[1])
  kQuantize,   // out[0] (int8 slot) = in[0]
  kLinear,     // out[i] = in[0] * weights[i] (+ vectors[i]) (+ in[1] for a single weight)
  kRopeTable,  // out[0] = cos and sin of position * vectors[0], times `scale`
  kRope,       // in[0] rotated in place by the table in[1]
  kAttention,  // out[0] = attention of in[0] (q) over the cache, which takes in[1] (k) and in[2]
               // (v)
  kSwiglu,     // out[0] = silu(in[0]) * in[1]
  kGeglu,      // out[0] = gelu(in[0]) * in[1]
  kGelu,       // out[0] = gelu(in[0]), in its erf form
  kAdd,        // out[0] = in[0] + in[1], or + vectors[0] to every row
  kScale,      // out[0] = in[0] * scale
  kSoftcap,    // out[0] = softcap * tanh(in[0] / softcap)
  kHadamard,   // out[0] = vectors[1] * H(vectors[0] * in[0]) over `groups` equal parts of a row
  kObserve,    // adds the squares of in[0] to `sums`
};

// One entry of a program's flat list. Slots are indices into the program's buffers.
// kRmsNorm, kLayerNorm, kSwiglu, kGeglu, kGelu and kHadamard write an int8 slot where `quantized`
// is set: the rounding is fused, and the float row never leaves the cache.
struct Op {
  OpKind kind;
  std::vector<int> in, out;
  std::vector<std::shared_ptr<ops::Weight>> weights;
  std::vector<std::shared_ptr<const std::vector<float>>> vectors;  // null: absent
  bool quantized = false;
  int groups = 1;                             // kRmsNorm: heads of a per-head norm, kRope: heads,
                                              // kHadamard: blocks
  int layer = 0;                              // kAttention: of the cache
  int heads = 0, kv_heads = 0, head_dim = 0;  // kAttention, kRope (head_dim)
  int window = 0;            // kAttention: keys a query may look back on, itself counted; 0: all
  bool causal = true;        // kAttention: else a query sees all positions up to the last of its
                             // sequence in the batch
  bool interleaved = false;  // kRope: pairs (2i, 2i + 1) instead of (i, i + pairs)
  float eps = 0.0f;
  float scale = 1.0f;
  float softcap = 0.0f;             // kAttention: of scores, 0: none
  std::shared_ptr<InputSums> sums;  // kObserve
};

// A buffer of a program: `width` values a row, as float32 or rounded to int8 groups of 32.
struct Slot {
  int64_t width;
  bool quantized;
  bool tables = false;  // with the lookup tables that a reader of an int8 slot wants
};

}  // namespace oxibonsai::program

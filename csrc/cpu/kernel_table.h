#pragma once

// What a CPU tier offers: a table of function pointers and the plain structs they take. This header
// is all that a tier's files share with the rest of the package, so it holds no inline function.

#include <cstdint>

#include "graph/activation.h"
#include "graph/conv_block.h"
#include "graph/key_pattern.h"
#include "graph/kv_types.h"
#include "quant/quant_type.h"

namespace oxibonsai::cpu {

// A result of a smaller magnitude is written as +0, and a group of 32 activations whose largest
// magnitude is smaller counts as zero (docs/arithmetic.md, rule 11).
constexpr float kTiny = 0x1p-60f;

// Rows of activations rounded to int8 in groups of 32 (docs/arithmetic.md, rule 4), and what
// kernels want to know of them besides. cpu/quantized_rows.h lays them out.
struct QuantizedRows {
  int8_t* q;             // [rows, cols]
  float* scale;          // [rows, cols / 32]
  int32_t* minus_sum16;  // [rows, cols / 16]: minus the sums of 16 consecutive q
  int32_t* minus_sum;    // [rows, cols / 32]: minus the sums of 32 consecutive q
  float* offset;         // [rows, cols / 32]: scale * float(sum), for types with a minimum
  // For kernels that look sums up (cpu/body/linear_1bit.h), else null.
  uint8_t* tables;     // [rows, cols / 32, kTableBytes]
  int32_t* minus_abs;  // [rows, cols / 32]: minus the sums of 32 consecutive |q|
  int64_t cols;
};

// Bytes of QuantizedRows::tables for 32 activations: 16 entries for each of 8 quads, in the order
// 0, 2, 4, 6, 1, 3, 5, 7, their low parts, then their high parts.
constexpr int kTableBytes = 256;

// Prompts are worked on in panels of so many tokens, whose activations or tables stay in the
// second-level cache while all rows pass over them.
constexpr int64_t kPanelTokens = 32;
// Rows that a thread takes at once: a multiple of the tile, few enough to balance threads.
constexpr int64_t kItemRows = 64;

// y[t, r] (+)= sum over k of x[t, k] * w[r, k], for first_token <= t < last_token and first <= r <
// last.
struct LinearArgs {
  const uint8_t* weight;  // the file's rows, or tiles, as the kernel's tile_rows says
  int64_t row_bytes;      // bytes of one row in the file's form
  int64_t tile_bytes;     // bytes of one tile in the packed form
  int64_t cols;
  int64_t first, last;  // first is a multiple of tile_rows
  QuantizedRows x;      // for quantized weights
  const float* xf;      // [tokens, cols], for float weights
  int64_t first_token;  // a multiple of kPanelTokens
  int64_t last_token;
  const float* bias;  // [rows] or null: added before `add`
  const float* add;   // [tokens, stride] or null: added last
  float* y;           // [tokens, stride]
  int64_t stride;
};

// How a tile holds its codes (cpu/tile_format.h). kByteRows and kWordRows, of one-bit codes, belong
// to kernels that read QuantizedRows::tables.
enum class TileForm : uint8_t { kQuads, kByteRows, kWordRows, kRowTriples };

struct LinearKernel {
  void (*run)(const LinearArgs&);
  int tile_rows;  // interleaved in one tile; 0: the kernel reads the file's own rows
  TileForm form = TileForm::kQuads;
  int64_t item_rows = kItemRows;
};

using graph::kPagePositions;
// A long context is cut at multiples of this many positions; the parts are merged in order.
constexpr int kPartPositions = 512;
// Query vectors that attend() takes at once.
constexpr int kMaxQueries = 8;

using graph::kKvGroup;
using graph::KvLayout;
using graph::KvType;

// One part of the context for several query vectors that share a key-value head. Each sees a
// range of the part's positions of its own: neighbouring positions share all pages but the last.
struct AttendArgs {
  const float* q[kMaxQueries];  // [key_dim] each, already multiplied by the attention scale
  int first[kMaxQueries];       // visible positions of the part: first <= i < last; none if empty
  int last[kMaxQueries];
  int queries;                   // 1 .. kMaxQueries
  KvLayout kv;                   // of keys and values
  const uint8_t* const* keys;    // per page of the part
  const uint8_t* const* values;  // per page of the part; the keys with value_in_key
  bool fetch;                    // ahead of its use; false where another call just read the part
  float softcap;                 // 0: none
  int at[kMaxQueries];           // the query's position, counted from the part's first
  // Of linear biases: -slope * (distance of key and query) joins a score.
  bool biased;
  float slope[kMaxQueries];
  // By position: bias[key - query] joins a score, the difference within -reach and reach. Null:
  // none does.
  const float* position_bias[kMaxQueries];
  int reach;
  // What queries see of their windows, if not all; null: all. `base` is the part's first position.
  const graph::KeyPattern* pattern;
  int window, base;
  int head[kMaxQueries];
  float* max;  // [queries]: largest score
  float* sum;  // [queries]: sum of exp(score - max); 0 for an empty range
  float* out;  // [queries, value_stride]: sum of exp(score - max) * value
};

struct RopeArgs {
  float* x;          // [heads, head_dim], rotated in place
  const float* cos;  // [pairs]
  const float* sin;  // [pairs]
  int heads, head_dim;
  int pairs;  // rotated pairs; the dims past 2 * pairs stay
};

// y = after * H(before * x), H the orthonormal Hadamard matrix in Sylvester's order, block by
// block; block is a power of two that divides n. A missing factor stands for ones; y may be x.
struct HadamardArgs {
  const float* x;       // [n]
  const float* before;  // [n] or null
  const float* after;   // [n] or null
  int64_t n, block;
  float* y;  // [n]
};

// Constants of graph::Xielu.
struct XieluArgs {
  float alpha_p, alpha_n, beta, eps;
};

// Causal convolution of n channels, and silu of it if asked for.
struct ConvArgs {
  const float* const* rows;  // [taps]: inputs [n], the earliest first
  const float* weight;       // [taps, stride]
  const float* bias;         // [n] or null
  int64_t stride;            // floats between the weights of two taps
  int64_t n;
  int taps;
  bool silu;
  float* y;  // [n]
};

// Columns of a head's state that a scan takes at once; they lie side by side.
constexpr int kScanColumns = 16;

// Some tokens of one sequence through kScanColumns columns of the state of one head, a matrix
// [key_dim, value_dim]: what is written below as k, q and v is b, c and x in Mamba 2.
struct ScanArgs {
  float* state;        // [key_dim, kScanColumns]
  const float* q;      // [tokens, key_dim]
  const float* k;      // [tokens, key_dim]
  const float* v;      // [tokens, columns]
  const float* decay;  // [tokens]
  const float* write;  // [tokens]: factor of what is written
  float* y;            // [tokens, columns]
  int64_t key_stride;  // floats between two tokens of q and of k
  int64_t v_stride, y_stride;
  int key_dim, columns;  // 1 .. kScanColumns columns are in use
  int tokens;
  float skip;  // factor of v that is added to the result; 0: none
};

// Some tokens of one sequence through kScanColumns channels of Mamba 1.
struct ChannelScanArgs {
  float* state;          // [state_dim, kScanColumns]
  const float* decay;    // [state_dim, kScanColumns]
  const float* dt_bias;  // [channels]
  const float* skip;     // [channels]
  const float* x;        // [tokens, channels]
  const float* time_step;
  const float* b;  // [tokens, state_dim]
  const float* c;
  float* y;              // [tokens, channels]
  int64_t stride;        // floats between two tokens of x, time_step and y
  int64_t state_stride;  // of b and c
  int state_dim, channels;
  int tokens;
};

// Some tokens of one sequence through kScanColumns columns of the state of one head of RWKV-7.
struct Wkv7Args {
  float* state;  // [dim, kScanColumns]
  const float *r, *k, *kk;
  const float* decay;  // [tokens, dim]
  const float* erase;  // [tokens, dim]: -(kk * a)
  const float* v;
  float* y;
  int64_t stride;  // floats between two tokens of r, k, kk, v and y
  int dim, columns;
  int tokens;
};

using graph::kConvBlock;
// Pixels of a tile, which a convolution works on at once, at most.
constexpr int kConvPixels = 96;

// A tile of rows x cols output pixels, for the output channels of one block of the weights: each
// result is the chain sum = fma(x, w, sum) over kernel rows, kernel columns and input channels,
// from +0; then the bias is added, then `add`.
struct ConvTileArgs {
  const float* x;       // the pixels that the tile reads, [.., patch_cols, channels]
  const float* weight;  // [kernel, kernel, channels, kConvBlock]
  const float* bias;    // [columns] or null
  const float* add;     // laid out as y, or null
  float* y;             // channel 0 of the block of the first pixel
  int64_t patch_cols, channels;
  int64_t row_floats, pixel_floats;  // between two rows, and two pixels of a row, of y
  int kernel, stride;
  int rows, cols;  // at most kConvPixels together
  int columns;     // channels of the block that y has, 1 .. kConvBlock
};

// Pixels normalised channel by channel: fma((x - mean) * inverse, weight, bias), then silu of it.
struct NormPixelsArgs {
  const float* x;  // [pixels, channels]
  const float* mean;
  const float* inverse;
  const float* weight;
  const float* bias;
  int64_t pixels, channels;
  bool silu;
  float* y;
};

struct KernelTable {
  const char* name;

  LinearKernel linear[static_cast<int>(quant::QuantType::kCount)];

  // x[n] to groups of 32, from the first of out; n is a multiple of 32. Leaves the tables alone.
  void (*quantize)(const float* x, int64_t n, const QuantizedRows& out);
  // Tables and minus_abs of q[n], from the first of out; null where no kernel of the tier reads
  // them.
  void (*make_tables)(const int8_t* q, int64_t n, const QuantizedRows& out);
  // y = x / sqrt(mean(x^2) + eps) * w over n values, of which first .. last - 1 are written. y may
  // be x where all are.
  void (*rms_norm)(const float* x, const float* w, int64_t n, float eps, int64_t first,
                   int64_t last, float* y);
  // y = (x - mean) / sqrt(var + eps) * w + b; b may be null. y may be x.
  void (*layer_norm)(const float* x, const float* w, const float* b, int64_t n, float eps,
                     float* y);
  // y = x * sqrt(mean(like^2)) / sqrt(max(mean(x^2), floor)). y may be x.
  void (*match_rms)(const float* x, const float* like, int64_t n, float floor, float* y);
  // y = max(x - (mean + deviations * sqrt(var)), 0). y may be x.
  void (*gaussian_top_k)(const float* x, int64_t n, float deviations, float* y);
  void (*rope_halves)(const RopeArgs&);  // pairs (i, i + pairs): NEOX
  void (*rope_pairs)(const RopeArgs&);   // pairs (2i, 2i + 1): interleaved
  void (*hadamard)(const HadamardArgs&);
  void (*attend)(const AttendArgs&);
  // A key or value x[n] to codes and f16 scales of groups of kKvGroup, the last filled up with +0.
  // For kQ8_0 and kQ4_0.
  void (*round_kv)(KvType type, const float* x, int n, int8_t* codes, uint16_t* scales);
  // Merges a part (max, sum, out) into the running one of a single query; n values.
  void (*merge_parts)(float* max, float* sum, float* out, float part_max, float part_sum,
                      const float* part_out, int n);
  // act(gate) * up and act(x), by graph::Activation; null where there is none. y may be x.
  void (*gated[graph::kActivations])(const float* gate, const float* up, int64_t n, float* y);
  void (*activate[graph::kActivations])(const float* x, int64_t n, float* y);
  void (*add)(const float* a, const float* b, int64_t n, float* y);
  void (*scale)(const float* x, float factor, int64_t n, float* y);
  void (*xielu)(const float* x, const XieluArgs&, int64_t n, float* y);
  // y = the sum of weights[i] * x[i], i < count, in order; without weights their plain sum.
  void (*weighted_sum)(const float* const* x, const float* weights, int count, int64_t n, float* y);
  void (*clamp)(const float* x, float limit, int64_t n, float* y);  // within -limit and limit
  void (*softcap)(const float* x, float cap, int64_t n, float* y);  // cap * tanh(x / cap)
  void (*conv1d)(const ConvArgs&);
  void (*delta_scan)(const ScanArgs&);   // writes write * (v - what the state holds for k)
  void (*linear_scan)(const ScanArgs&);  // writes write * v
  void (*channel_scan)(const ChannelScanArgs&);
  void (*wkv7_scan)(const Wkv7Args&);
  // x * (1 + scale) + shift, and x + gate * y, as one fma each.
  void (*modulate)(const float* x, const float* scale, const float* shift, int64_t n, float* y);
  void (*add_gated)(const float* x, const float* y, const float* gate, int64_t n, float* out);
  void (*conv_tile)(const ConvTileArgs&);
  void (*norm_pixels)(const NormPixelsArgs&);
  // The sums over pixels x[pixels, n], in order, for each channel; with a mean those of the squares
  // of the distances from it.
  void (*sum_pixels)(const float* x, const float* mean, int64_t pixels, int64_t n, float* y);
  void (*to_half)(const float* x, int64_t n, uint16_t* y);
  // Does as many int8 multiply-adds as it can in `rounds` rounds and returns their number; null in
  // the scalar tier. For benchmarks.
  int64_t (*int8_peak)(int64_t rounds);
  // The same of float multiply-adds, in every tier.
  int64_t (*fma_peak)(int64_t rounds);
  // The lowest index of the largest value; NaN counts as the smallest.
  int64_t (*argmax)(const float* x, int64_t n);
  // Elementwise functions of rule 3, for tests: y = f(x).
  void (*exp)(const float* x, int64_t n, float* y);
  void (*tanh)(const float* x, int64_t n, float* y);
  void (*erf)(const float* x, int64_t n, float* y);
  void (*softplus)(const float* x, int64_t n, float* y);  // also used by scans
};

}  // namespace oxibonsai::cpu

#pragma once

// Ops over a slot of recurrent state. A sequence's tokens go through one after the other; the token
// at position 0 begins with a state of zeros, whatever the slot holds.

#include "graph/check.h"

namespace oxibonsai::graph {

// Causal depthwise convolution over the tokens of a sequence: out[t, c] is the sum over j of
// weight[c, j] * x[t - taps + 1 + j, c], from the earliest on, plus bias[c]; then silu of it, if
// asked for. The slot keeps the last taps - 1 rows of x.
struct Conv1d {
  static constexpr const char* kName = "conv1d";
  static constexpr const char* kDoc =
      "Return a causal depthwise convolution over a sequence's tokens.";
  ValueId x = kNoValue;  // [tokens, channels]
  Vector weight;         // [channels, taps]
  Vector bias;           // [channels] or null
  int taps = 0;
  int slot = 0;  // of StateSpec::slot
  bool silu = false;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x)
        .takes("weight", weight)
        .takes("bias", bias, kNullable)
        .takes("taps", taps)
        .state("slot", slot)
        .takes("silu", silu, kOptional)
        .makes("out", out);
  }
};

// The columns of a scan's state that lie together; a head's last block is filled up with zeros.
constexpr int64_t kScanColumns = 16;

// Floats of the state of `heads` heads, each a matrix [key_dim, value_dim].
inline int64_t scan_floats(int64_t heads, int64_t key_dim, int64_t value_dim) {
  return heads * key_dim * ((value_dim + kScanColumns - 1) / kScanColumns * kScanColumns);
}

// The gated delta rule (Gated DeltaNet). Each value head keeps a matrix S [key_dim, value_dim]; a
// token with query q, key k and value v does
//   S = exp(decay * softplus(alpha + dt_bias)) * S
//   S = S + k (sigmoid(beta) * (v - S^T k))^T
//   out = S^T q
// q and k are divided by sqrt(their sum of squares + eps) first, q by sqrt(key_dim) too.
struct GatedDelta {
  static constexpr const char* kName = "gated_delta";
  static constexpr const char* kDoc =
      "Return the gated delta rule over a sequence's tokens: [tokens, value_heads * "
      "value_dim].";
  ValueId qkv = kNoValue;    // [tokens, 2 * key_heads * key_dim + value_heads * value_dim]
  ValueId alpha = kNoValue;  // [tokens, value_heads]
  ValueId beta = kNoValue;   // [tokens, value_heads]
  Vector dt_bias, decay;     // [value_heads]; decay is negative
  int key_heads = 0;
  int key_dim = 0, value_dim = 0;  // of a head
  // Which key head a value head reads: tiled, h mod key_heads; else h / (value_heads / key_heads).
  bool tiled = false;
  float eps = 0.0f;
  int slot = 0;  // of StateSpec::slot
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("qkv", qkv)
        .reads("alpha", alpha)
        .reads("beta", beta)
        .takes("dt_bias", dt_bias)
        .takes("decay", decay)
        .takes("key_heads", key_heads)
        .takes("key_dim", key_dim)
        .takes("value_dim", value_dim)
        .takes("tiled", tiled)
        .takes("eps", eps)
        .state("slot", slot)
        .makes("out", out);
  }
};

// The scan of Mamba 2. Each head keeps a matrix S [state_dim, head_dim]; a token with input x, and
// b and c of the head's group, does
//   dt = softplus(time_step + dt_bias)
//   S = exp(decay * dt) * S + b (dt * x)^T
//   out = S^T c + skip * x
struct Mamba2Scan {
  static constexpr const char* kName = "mamba2_scan";
  static constexpr const char* kDoc =
      "Return the scan of Mamba 2 over a sequence's tokens: [tokens, heads * head_dim].";
  ValueId xbc = kNoValue;        // [tokens, heads * head_dim + 2 * groups * state_dim]
  ValueId time_step = kNoValue;  // [tokens, heads]
  Vector dt_bias, decay, skip;   // [heads]; decay is negative
  int groups = 0, state_dim = 0;
  int slot = 0;            // of StateSpec::slot
  ValueId out = kNoValue;  // [tokens, heads * head_dim]

  template <class F>
  void fields(F& f) {
    f.reads("xbc", xbc)
        .reads("time_step", time_step)
        .takes("dt_bias", dt_bias)
        .takes("decay", decay)
        .takes("skip", skip)
        .takes("groups", groups)
        .takes("state_dim", state_dim)
        .state("slot", slot)
        .makes("out", out);
  }
};

// The selective scan of Mamba 1. Each channel keeps a vector h [state_dim]; a token does
//   dt = softplus(time_step + dt_bias)
//   h = exp(decay * dt) * h + b * (dt * x)
//   out = sum(h * c) + skip * x
struct MambaScan {
  static constexpr const char* kName = "mamba_scan";
  static constexpr const char* kDoc =
      "Return the selective scan of Mamba 1 over a sequence's tokens: [tokens, channels].";
  ValueId x = kNoValue;                // [tokens, channels]
  ValueId time_step = kNoValue;        // [tokens, channels]
  ValueId b = kNoValue, c = kNoValue;  // [tokens, state_dim]
  Vector dt_bias, skip;                // [channels]
  Vector decay;                        // [channels, state_dim], negative
  int slot = 0;                        // of StateSpec::slot
  ValueId out = kNoValue;              // [tokens, channels]

  template <class F>
  void fields(F& f) {
    f.reads("x", x)
        .reads("time_step", time_step)
        .reads("b", b)
        .reads("c", c)
        .takes("dt_bias", dt_bias)
        .takes("decay", decay)
        .takes("skip", skip)
        .state("slot", slot)
        .makes("out", out);
  }
};

// The scan of RWKV-7. Each head keeps a matrix S [head_dim, head_dim]; a token does
//   S = exp(-e^-0.5 * sigmoid(w)) * S - (kk * a) (S^T kk)^T + k v^T, of the S before
//   out = S^T r
// where exp(...) is a factor of each row of S.
struct Wkv7Scan {
  static constexpr const char* kName = "wkv7_scan";
  static constexpr const char* kDoc =
      "Return the scan of RWKV-7 over a sequence's tokens: [tokens, heads * head_dim].";
  ValueId r = kNoValue, w = kNoValue, k = kNoValue, v = kNoValue;  // [tokens, heads * head_dim]
  ValueId kk = kNoValue, a = kNoValue;                             // as r
  int head_dim = 0;
  int slot = 0;            // of StateSpec::slot
  ValueId out = kNoValue;  // as r

  template <class F>
  void fields(F& f) {
    f.reads("r", r)
        .reads("w", w)
        .reads("k", k)
        .reads("v", v)
        .reads("kk", kk)
        .reads("a", a)
        .takes("head_dim", head_dim)
        .state("slot", slot)
        .makes("out", out);
  }
};

std::vector<Value> infer(const Conv1d& op, const Checker& c);
std::vector<Value> infer(const GatedDelta& op, const Checker& c);
std::vector<Value> infer(const Mamba2Scan& op, const Checker& c);
std::vector<Value> infer(const MambaScan& op, const Checker& c);
std::vector<Value> infer(const Wkv7Scan& op, const Checker& c);

}  // namespace oxibonsai::graph

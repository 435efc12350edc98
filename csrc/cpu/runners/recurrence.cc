// Ops over a slot of recurrent state. An item is a head, or a run of channels, of one sequence,
// whose tokens it takes one after the other.

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/runner.h"

namespace oxibonsai::cpu {
namespace {

constexpr int64_t kItemChannels = 256;
// Tokens that pass over one block of columns before the next block.
constexpr int kScanTokens = 16;
constexpr int kSigmoid = static_cast<int>(graph::Activation::kSigmoid);

// State of `op`'s slot from `offset` on, of `floats` floats that are zero where a sequence begins.
float* state_of(const Step& s, const graph::Span& span, int slot, int64_t offset, int64_t floats) {
  float* state = s.state->slots->state(span.slot, slot) + offset;
  if (span.first == 0) std::fill_n(state, floats, 0.0f);
  return state;
}

// Copies the state of an entry to another slot.
void keep_state(const Step& s, const float* state, int64_t floats, int32_t slot, int entry,
                int64_t offset) {
  std::copy_n(state, floats, s.state->slots->state(slot, entry) + offset);
}

// Calls `run(first, count)` for a span's rows in order, `most` at once, and `keep(slot)` after each
// row whose state a slot takes.
template <class Run, class Keep>
void for_runs(const graph::Span& span, int most, const Run& run, const Keep& keep) {
  for (int t = 0; t < span.count;) {
    int end = t + 1;
    while (end < span.count && end - t < most && span.row_slot(end - 1) < 0) ++end;
    run(t, end - t);
    if (const int32_t slot = span.row_slot(end - 1); slot >= 0) keep(slot);
    t = end;
  }
}

class Conv1dRunner : public Runner {
 public:
  Conv1dRunner(const graph::Conv1d& op, const RunnerContext& c)
      : op_(op),
        x_(c.value(op.x)),
        out_(c.value(op.out)),
        count_((x_.cols + kItemChannels - 1) / kItemChannels),
        weight_(op.weight->size()) {
    for (int64_t i = 0; i < x_.cols; ++i)
      for (int j = 0; j < op.taps; ++j)
        weight_[static_cast<size_t>(j * x_.cols + i)] =
            (*op.weight)[static_cast<size_t>(i * op.taps + j)];
  }

  int64_t items(const Step& s, int) const override {
    return static_cast<int64_t>(s.batch->spans.size()) * count_;
  }

  void run(const Step& s, int, int64_t item) const override {
    const auto index = static_cast<size_t>(item / count_);
    const graph::Span& span = s.batch->spans[index];
    const int64_t first = item % count_ * kItemChannels;
    const int64_t n = std::min(kItemChannels, x_.cols - first);
    const int kept = op_.taps - 1;
    float* state = s.state->slots->state(span.slot, op_.slot) + first;
    if (span.first == 0)
      for (int i = 0; i < kept; ++i) std::fill_n(state + i * x_.cols, n, 0.0f);
    // Row i of the text that ends with the step: the kept ones come first.
    const auto row = [&](int i) -> const float* {
      return i < kept ? state + i * x_.cols : s.row(x_, s.first_row[index] + i - kept) + first;
    };
    thread_local std::vector<const float*> rows;
    rows.resize(static_cast<size_t>(op_.taps));
    for (int t = 0; t < span.count; ++t) {
      for (int j = 0; j < op_.taps; ++j) rows[static_cast<size_t>(j)] = row(t + j);
      s.kernels->conv1d({rows.data(), weight_.data() + first,
                         op_.bias != nullptr ? op_.bias->data() + first : nullptr, x_.cols, n,
                         op_.taps, op_.silu, s.row(out_, s.first_row[index] + t) + first});
    }
    for (int t = 0; t < span.count; ++t) {
      const int32_t slot = span.row_slot(t);
      if (slot < 0) continue;
      float* after = s.state->slots->state(slot, op_.slot) + first;
      for (int i = 0; i < kept; ++i) std::copy_n(row(t + 1 + i), n, after + i * x_.cols);
    }
    for (int i = 0; i < kept; ++i) std::copy_n(row(span.count + i), n, state + i * x_.cols);
  }

 private:
  const graph::Conv1d op_;
  const ValueRef x_, out_;
  const int64_t count_;
  std::vector<float> weight_;  // [taps, channels]
};

// A scan over matrices [key_dim, value_dim]: an item is a head of a sequence.
class ScanRunner : public Runner {
 public:
  ScanRunner(const ValueRef& x, const ValueRef& out, int slot, int64_t heads, int key_dim,
             int value_dim)
      : x_(x), out_(out), slot_(slot), heads_(heads), key_dim_(key_dim), value_dim_(value_dim) {}

  int64_t items(const Step& s, int) const override {
    return static_cast<int64_t>(s.batch->spans.size()) * heads_;
  }

  void run(const Step& s, int, int64_t item) const override {
    const auto index = static_cast<size_t>(item / heads_);
    const graph::Span& span = s.batch->spans[index];
    const int64_t h = item % heads_;
    const int64_t floats = graph::scan_floats(1, key_dim_, value_dim_);
    float* state = state_of(s, span, slot_, h * floats, floats);
    for_runs(
        span, kScanTokens,
        [&](int first, int count) { scan(s, h, s.first_row[index] + first, count, state); },
        [&](int32_t slot) { keep_state(s, state, floats, slot, slot_, h * floats); });
  }

 protected:
  struct Factors {
    float decay[kScanTokens], write[kScanTokens];
  };

  // Fills what a head's block of columns shares: factors, q, k and where v and the result begin.
  virtual void prepare(const Step& s, int64_t head, int64_t row, ScanArgs* args,
                       Factors* factors) const = 0;
  virtual void run_kernel(const Step& s, const ScanArgs& args) const = 0;

  // softplus(x + bias) and exp(decay * that) of one column of so many rows.
  static void decay_of(const Step& s, const ValueRef& x, int64_t row, int tokens, int64_t column,
                       float bias, float decay, float* dt, float* factor) {
    float biased[kScanTokens] = {};
    for (int t = 0; t < tokens; ++t) biased[t] = s.row(x, row + t)[column] + bias;
    s.kernels->softplus(biased, tokens, dt);
    for (int t = 0; t < tokens; ++t) biased[t] = decay * dt[t];
    s.kernels->exp(biased, tokens, factor);
    for (int t = 0; t < tokens; ++t)
      if (factor[t] < kTiny) factor[t] = 0.0f;
  }

  const ValueRef x_, out_;
  const int slot_;
  const int64_t heads_;
  const int key_dim_, value_dim_;

 private:
  void scan(const Step& s, int64_t head, int64_t row, int tokens, float* state) const {
    Factors factors;
    ScanArgs args{};
    args.key_dim = key_dim_;
    args.tokens = tokens;
    args.decay = factors.decay;
    args.write = factors.write;
    args.v_stride = x_.cols;
    args.y_stride = out_.cols;
    args.y = s.row(out_, row) + head * value_dim_;
    prepare(s, head, row, &args, &factors);
    for (int first = 0; first < value_dim_; first += kScanColumns) {
      args.columns = std::min(kScanColumns, value_dim_ - first);
      args.state = state + int64_t{first} * key_dim_;
      run_kernel(s, args);
      args.v += args.columns;
      args.y += args.columns;
    }
  }
};

class GatedDeltaRunner final : public ScanRunner {
 public:
  GatedDeltaRunner(const graph::GatedDelta& op, const RunnerContext& c)
      : ScanRunner(c.value(op.qkv), c.value(op.out), op.slot, c.value(op.alpha).cols, op.key_dim,
                   op.value_dim),
        op_(op),
        alpha_(c.value(op.alpha)),
        beta_(c.value(op.beta)),
        // Dividing by sqrt(sum + eps) is an RMSNorm whose weight is 1 / sqrt(n).
        eps_(op.eps / static_cast<float>(op.key_dim)),
        q_weight_(static_cast<size_t>(op.key_dim), 1.0f / static_cast<float>(op.key_dim)),
        k_weight_(static_cast<size_t>(op.key_dim),
                  1.0f / std::sqrt(static_cast<float>(op.key_dim))) {}

 protected:
  void prepare(const Step& s, int64_t head, int64_t row, ScanArgs* args,
               Factors* factors) const override {
    const int64_t width = op_.key_dim;
    const int64_t keys = op_.key_heads * width;
    const int64_t source = op_.tiled ? head % op_.key_heads : head / (heads_ / op_.key_heads);
    thread_local std::vector<float> unit;
    unit.resize(static_cast<size_t>(2 * kScanTokens * width));
    float* q = unit.data();
    float* k = q + kScanTokens * width;
    float raw[kScanTokens] = {};
    for (int t = 0; t < args->tokens; ++t) {
      const float* in = s.row(x_, row + t) + source * width;
      s.kernels->rms_norm(in, q_weight_.data(), width, eps_, 0, width, q + t * width);
      s.kernels->rms_norm(in + keys, k_weight_.data(), width, eps_, 0, width, k + t * width);
      raw[t] = s.row(beta_, row + t)[head];
    }
    const auto h = static_cast<size_t>(head);
    float dt[kScanTokens];
    decay_of(s, alpha_, row, args->tokens, head, (*op_.dt_bias)[h], (*op_.decay)[h], dt,
             factors->decay);
    s.kernels->activate[kSigmoid](raw, args->tokens, factors->write);
    args->q = q;
    args->k = k;
    args->key_stride = width;
    args->v = s.row(x_, row) + 2 * keys + head * op_.value_dim;
  }

  void run_kernel(const Step& s, const ScanArgs& args) const override {
    s.kernels->delta_scan(args);
  }

 private:
  const graph::GatedDelta op_;
  const ValueRef alpha_, beta_;
  const float eps_;
  const std::vector<float> q_weight_, k_weight_;
};

class Mamba2ScanRunner final : public ScanRunner {
 public:
  Mamba2ScanRunner(const graph::Mamba2Scan& op, const RunnerContext& c)
      : ScanRunner(c.value(op.xbc), c.value(op.out), op.slot, c.value(op.time_step).cols,
                   op.state_dim,
                   static_cast<int>(c.value(op.out).cols / c.value(op.time_step).cols)),
        op_(op),
        time_step_(c.value(op.time_step)) {}

 protected:
  void prepare(const Step& s, int64_t head, int64_t row, ScanArgs* args,
               Factors* factors) const override {
    const auto h = static_cast<size_t>(head);
    decay_of(s, time_step_, row, args->tokens, head, (*op_.dt_bias)[h], (*op_.decay)[h],
             factors->write, factors->decay);
    const int64_t group = head / (heads_ / op_.groups);
    const float* in = s.row(x_, row);
    args->k = in + out_.cols + group * op_.state_dim;
    args->q = args->k + int64_t{op_.groups} * op_.state_dim;
    args->key_stride = x_.cols;
    args->v = in + head * value_dim_;
    args->skip = (*op_.skip)[h];
  }

  void run_kernel(const Step& s, const ScanArgs& args) const override {
    s.kernels->linear_scan(args);
  }

 private:
  const graph::Mamba2Scan op_;
  const ValueRef time_step_;
};

// An item is kScanColumns channels of a sequence.
class MambaScanRunner : public Runner {
 public:
  MambaScanRunner(const graph::MambaScan& op, const RunnerContext& c)
      : op_(op),
        x_(c.value(op.x)),
        time_step_(c.value(op.time_step)),
        b_(c.value(op.b)),
        c_(c.value(op.c)),
        out_(c.value(op.out)),
        count_((x_.cols + kScanColumns - 1) / kScanColumns),
        decay_(static_cast<size_t>(count_ * kScanColumns * b_.cols)) {
    for (int64_t i = 0; i < x_.cols; ++i)
      for (int64_t j = 0; j < b_.cols; ++j)
        decay_[static_cast<size_t>((i / kScanColumns * b_.cols + j) * kScanColumns +
                                   i % kScanColumns)] =
            (*op.decay)[static_cast<size_t>(i * b_.cols + j)];
  }

  int64_t items(const Step& s, int) const override {
    return static_cast<int64_t>(s.batch->spans.size()) * count_;
  }

  void run(const Step& s, int, int64_t item) const override {
    const auto index = static_cast<size_t>(item / count_);
    const graph::Span& span = s.batch->spans[index];
    const int64_t first = item % count_ * kScanColumns;
    const int64_t block = first * b_.cols, floats = kScanColumns * b_.cols;
    ChannelScanArgs args{};
    args.state = state_of(s, span, op_.slot, block, floats);
    args.decay = decay_.data() + block;
    args.dt_bias = op_.dt_bias->data() + first;
    args.skip = op_.skip->data() + first;
    args.stride = x_.cols;
    args.state_stride = b_.cols;
    args.state_dim = static_cast<int>(b_.cols);
    args.channels = static_cast<int>(std::min<int64_t>(kScanColumns, x_.cols - first));
    for_runs(
        span, span.count,
        [&](int begin, int count) {
          const int64_t row = s.first_row[index] + begin;
          args.x = s.row(x_, row) + first;
          args.time_step = s.row(time_step_, row) + first;
          args.b = s.row(b_, row);
          args.c = s.row(c_, row);
          args.y = s.row(out_, row) + first;
          args.tokens = count;
          s.kernels->channel_scan(args);
        },
        [&](int32_t slot) { keep_state(s, args.state, floats, slot, op_.slot, block); });
  }

 private:
  const graph::MambaScan op_;
  const ValueRef x_, time_step_, b_, c_, out_;
  const int64_t count_;
  std::vector<float> decay_;  // [blocks of channels, state_dim, kScanColumns]
};

// An item is a head of a sequence.
class Wkv7ScanRunner : public Runner {
 public:
  Wkv7ScanRunner(const graph::Wkv7Scan& op, const RunnerContext& c)
      : dim_(op.head_dim),
        slot_(op.slot),
        r_(c.value(op.r)),
        w_(c.value(op.w)),
        k_(c.value(op.k)),
        v_(c.value(op.v)),
        kk_(c.value(op.kk)),
        a_(c.value(op.a)),
        out_(c.value(op.out)),
        heads_(r_.cols / dim_) {}

  int64_t items(const Step& s, int) const override {
    return static_cast<int64_t>(s.batch->spans.size()) * heads_;
  }

  void run(const Step& s, int, int64_t item) const override {
    const auto index = static_cast<size_t>(item / heads_);
    const graph::Span& span = s.batch->spans[index];
    const int64_t head = item % heads_, floats = graph::scan_floats(1, dim_, dim_);
    float* state = state_of(s, span, slot_, head * floats, floats);
    for_runs(
        span, kScanTokens,
        [&](int first, int count) {
          scan(s, head * dim_, s.first_row[index] + first, count, state);
        },
        [&](int32_t slot) { keep_state(s, state, floats, slot, slot_, head * floats); });
  }

 private:
  void scan(const Step& s, int64_t column, int64_t row, int tokens, float* state) const {
    // -e^-0.5: the state keeps at least exp of that.
    constexpr float kSlowest = -0.6065306597f;
    thread_local std::vector<float> factors;
    factors.resize(static_cast<size_t>(2 * kScanTokens * dim_));
    float* decay = factors.data();
    float* erase = decay + kScanTokens * dim_;
    for (int t = 0; t < tokens; ++t) {
      const float* kk = s.row(kk_, row + t) + column;
      const float* a = s.row(a_, row + t) + column;
      float* d = decay + t * dim_;
      s.kernels->activate[kSigmoid](s.row(w_, row + t) + column, dim_, d);
      for (int i = 0; i < dim_; ++i) {
        d[i] = kSlowest * d[i];
        erase[t * dim_ + i] = -(kk[i] * a[i]);
      }
      s.kernels->exp(d, dim_, d);
    }
    Wkv7Args args{};
    args.r = s.row(r_, row) + column;
    args.k = s.row(k_, row) + column;
    args.kk = s.row(kk_, row) + column;
    args.decay = decay;
    args.erase = erase;
    args.stride = out_.cols;
    args.dim = dim_;
    args.tokens = tokens;
    for (int first = 0; first < dim_; first += kScanColumns) {
      args.columns = std::min(kScanColumns, dim_ - first);
      args.state = state + int64_t{first} * dim_;
      args.v = s.row(v_, row) + column + first;
      args.y = s.row(out_, row) + column + first;
      s.kernels->wkv7_scan(args);
    }
  }

  const int dim_, slot_;
  const ValueRef r_, w_, k_, v_, kk_, a_, out_;
  const int64_t heads_;
};

}  // namespace

RunnerPtr make_runner(const graph::Conv1d& op, const RunnerContext& c) {
  return std::make_unique<Conv1dRunner>(op, c);
}

RunnerPtr make_runner(const graph::GatedDelta& op, const RunnerContext& c) {
  return std::make_unique<GatedDeltaRunner>(op, c);
}

RunnerPtr make_runner(const graph::Mamba2Scan& op, const RunnerContext& c) {
  return std::make_unique<Mamba2ScanRunner>(op, c);
}

RunnerPtr make_runner(const graph::MambaScan& op, const RunnerContext& c) {
  return std::make_unique<MambaScanRunner>(op, c);
}

RunnerPtr make_runner(const graph::Wkv7Scan& op, const RunnerContext& c) {
  return std::make_unique<Wkv7ScanRunner>(op, c);
}

}  // namespace oxibonsai::cpu

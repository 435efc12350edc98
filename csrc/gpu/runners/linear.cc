#include "gpu/runners/linear.h"

#include <algorithm>
#include <string>

#include "gpu/runners/flat.h"

namespace oxibonsai::gpu {
namespace {

// Of gpu/kernels/gemm.h and linear_float.h.
constexpr int64_t kFloatRows = 8, kGemmTile = 64;
constexpr uint32_t kGemmThreads = 256, kFloatThreads = 128;
// Tokens of a block of threads, besides one.
constexpr int64_t kFewGemvTokens = 4, kMostGemvTokens = 8;
constexpr int64_t kHadamardValues = 8192, kHadamardChunk = 1024;

// Panels of a step have at most this many more rows than there are (graph::Route).
int64_t most_panels(const Product& p) {
  if (p.single) return p.rows;
  const int64_t experts = std::min(p.rows, p.factors.front().weight->weight().experts());
  return (p.rows + experts * (graph::kPanelRows - 1)) / graph::kPanelRows;
}

// Groups of so many tokens of a launch.
uint32_t groups_of(const Product& p, int64_t tokens) {
  if (p.panels.buffer == nullptr) return blocks_of(p.rows, tokens);
  return static_cast<uint32_t>(most_panels(p) * (p.single ? 1 : graph::kPanelRows / tokens));
}

// What a kernel is told of rows and of one matrix.
template <class Args>
void set_rows(const Product& p, const Factor& f, int64_t tokens, Args* a) {
  a->tokens = static_cast<uint32_t>(p.rows);
  a->has_bias = f.bias.buffer != nullptr;
  a->has_add = p.add.buffer != nullptr;
  if (p.panels.buffer == nullptr) return;
  a->panels = static_cast<uint32_t>(p.rows);
  a->panel_groups = p.single ? 1 : static_cast<uint32_t>(graph::kPanelRows / tokens);
}

void launch_float(const Step& s, const Product& p) {
  const Factor& f = p.factors.front();
  const bool one = p.panels.buffer != nullptr ? p.single : p.rows == 1;
  const int64_t tokens = one ? 1 : kMostGemvTokens;
  args::FloatLinearArgs a = f.weight->float_args();
  set_rows(p, f, tokens, &a);
  const std::string kernel = "linear_" + f.weight->form() + "_" + std::to_string(tokens);
  s.launch(kernel.c_str(), {groups_of(p, tokens), blocks_of(a.rows, kFloatRows)}, kFloatThreads, a,
           std::array<Address, 6>{f.weight->data(), p.x, f.bias, p.add, p.panels, f.y});
}

void launch_gemm(const Step& s, const Product& p, Int8Mma int8_mma) {
  static constexpr const char* kSuffixes[] = {"", "_mma8", "_mma"};  // by Int8Mma
  const RoundedRows& x = p.rounded;
  for (const Factor& f : p.factors) {
    args::LinearArgs a = f.weight->integer_args();
    set_rows(p, f, kGemmTile, &a);
    const std::string kernel =
        "gemm_" + f.weight->form() + kSuffixes[static_cast<size_t>(int8_mma)];
    s.launch(kernel.c_str(), {groups_of(p, kGemmTile), blocks_of(a.rows, kGemmTile)}, kGemmThreads,
             a, std::array<Address, 7>{f.weight->data(), x.q, x.scale, x.sums, f.bias, p.add, f.y});
  }
}

void launch_gemv(const Step& s, const Product& p) {
  const bool one = p.panels.buffer != nullptr ? p.single : p.rows == 1;
  const bool few = p.panels.buffer == nullptr && p.rows <= kFewGemvTokens;
  const int64_t tokens = one ? 1 : few ? kFewGemvTokens : kMostGemvTokens;
  args::GemvArgs a{};
  std::array<Address, 14> buffers{p.rounded.q, p.rounded.scale, p.rounded.sums, p.add, p.panels};
  uint32_t blocks = 0;
  for (size_t i = 0; i < p.factors.size(); ++i) {
    const Factor& f = p.factors[i];
    a.matrices[i] = f.weight->integer_args();
    set_rows(p, f, tokens, &a.matrices[i]);
    blocks += blocks_of(a.matrices[i].rows, kGemvRows);
    if (i == 0) a.second = blocks;
    if (i <= 1) a.third = blocks;
    buffers[5 + i] = f.weight->data();
    buffers[8 + i] = f.bias;
    buffers[11 + i] = f.y;
  }
  const std::string kernel =
      "gemv_" + p.factors.front().weight->form() + "_" + std::to_string(tokens);
  s.launch(kernel.c_str(), {groups_of(p, tokens), blocks}, kGemvThreads, a, buffers);
}

// Whether gemv takes another matrix beside those.
bool joins(const std::vector<Factor>& factors, const PackedWeight& w) {
  int64_t blocks = blocks_of(w.weight().rows(), kGemvRows);
  for (const Factor& f : factors) {
    if (!w.weight().integer() || f.weight->form() != w.form()) return false;
    blocks += blocks_of(f.weight->weight().rows(), kGemvRows);
  }
  return factors.size() < kMostFactors && blocks <= UINT16_MAX;
}

}  // namespace

void launch_product(const Step& s, const Product& p, Int8Mma int8_mma) {
  if (p.rows == 0) return;
  if (!p.factors.front().weight->weight().integer()) return launch_float(s, p);
  if (p.panels.buffer == nullptr && p.rows > kMostGemvTokens) return launch_gemm(s, p, int8_mma);
  launch_gemv(s, p);
}

RunnerPtr make_runner(const graph::Linear& op, const RunnerContext& c) {
  struct Launched {               // by one launch_product()
    std::vector<Factor> factors;  // but for y
    std::vector<ValueRef> out;
  };
  std::vector<Launched> all;
  for (size_t i = 0; i < op.weights.size(); ++i) {
    const Factor f{c.packed(op.weights[i]),
                   op.biases.empty() ? Address{} : c.constants->put(op.biases[i]),
                   {}};
    if (all.empty() || !joins(all.back().factors, *f.weight)) all.emplace_back();
    all.back().factors.push_back(f);
    all.back().out.push_back(c.value(op.out[i]));
  }
  const ValueRef x = c.value(op.x);
  const ValueRef add = op.add != graph::kNoValue ? c.value(op.add) : ValueRef{};
  const Int8Mma int8_mma = c.capabilities.int8_mma;
  return runner_of([=](const Step& s) {
    for (const Launched& launched : all) {
      Product p;
      p.factors = launched.factors;
      for (size_t i = 0; i < launched.out.size(); ++i) p.factors[i].y = s.address(launched.out[i]);
      set_input(s, x, &p);
      p.add = s.address(add);
      p.rows = s.rows_of(x);
      launch_product(s, p, int8_mma);
    }
  });
}

namespace {

// Heads are experts that every row goes to: rows [rows, heads, cols] become [heads, rows, cols],
// each head's rows a run of panels, and the result goes the other way.
class HeadLinearRunner : public Runner {
 public:
  HeadLinearRunner(const graph::HeadLinear& op, const RunnerContext& c)
      : x_(c.value(op.x)), out_(c.value(op.out)), weight_(c.packed(op.weight)) {}

  void prepare(Step* s) const override {
    const int64_t tokens = s->rows_of(x_), rows = tokens * heads();
    std::vector<int32_t> panels(static_cast<size_t>(rows * graph::kPanelColumns), 0);
    int64_t panel = 0;
    for (int64_t head = 0; head < heads(); ++head)
      for (int64_t r = 0; r < tokens; r += graph::kPanelRows, ++panel) {
        int32_t* entry = &panels[static_cast<size_t>(panel * graph::kPanelColumns)];
        entry[graph::kPanelFirst] = static_cast<int32_t>(head * tokens + r);
        entry[graph::kPanelExpert] = static_cast<int32_t>(head);
      }
    for (; panel < rows; ++panel)
      panels[static_cast<size_t>(panel * graph::kPanelColumns + graph::kPanelFirst)] =
          static_cast<int32_t>(rows);
    const std::pair<int64_t, int64_t> key{heads(), tokens};
    if (s->head_panels.count(key) == 0) {
      s->head_panels[key] = static_cast<int64_t>(s->tables.words.size());
      s->tables.words.insert(s->tables.words.end(), panels.begin(), panels.end());
    }
  }

  int64_t workspace_bytes(const Step& s) const override {
    return moved_bytes(s) + rounded_bytes(s.values_of(x_)) +
           s.values_of(out_) * static_cast<int64_t>(sizeof(float));
  }

  void run(const Step& s) const override {
    const int64_t tokens = s.rows_of(x_);
    if (tokens == 0) return;
    Product p;
    const Address y = s.workspace + moved_bytes(s) + rounded_bytes(s.values_of(x_));
    p.factors = {{weight_, {}, y}};
    p.x = s.workspace;
    p.rounded = rounded_rows(s.workspace + moved_bytes(s), s.values_of(x_));
    p.rows = tokens * heads();
    p.panels = s.table(s.head_panels.at({heads(), tokens}));
    p.single = tokens == 1;
    transpose(s, s.address(x_), p.x, tokens, heads(), weight_->weight().cols());
    if (weight_->weight().integer()) {
      args::FlatArgs a{};
      a.count = static_cast<uint64_t>(s.values_of(x_));
      s.launch("round_int8", flat_grid(s.values_of(x_)), kFlatThreads, a,
               std::array<Address, 4>{p.x, p.rounded.q, p.rounded.scale, p.rounded.sums});
    }
    launch_product(s, p, Int8Mma::kNone);
    transpose(s, y, s.address(out_), heads(), tokens, weight_->weight().rows());
  }

 private:
  int64_t heads() const { return weight_->weight().experts(); }
  int64_t moved_bytes(const Step& s) const {
    return (s.values_of(x_) * static_cast<int64_t>(sizeof(float)) + 255) / 256 * 256;
  }

  static void transpose(const Step& s, Address from, Address to, int64_t outer, int64_t inner,
                        int64_t width) {
    args::MoveArgs a{};
    a.count = static_cast<uint64_t>(outer * inner * width);
    a.outer = static_cast<uint32_t>(outer);
    a.inner = static_cast<uint32_t>(inner);
    a.width = static_cast<uint32_t>(width);
    s.launch("transpose_heads", flat_grid(outer * inner * width), kFlatThreads, a,
             std::array<Address, 2>{from, to});
  }

  const ValueRef x_, out_;
  const PackedWeightPtr weight_;
};

}  // namespace

RunnerPtr make_runner(const graph::HeadLinear& op, const RunnerContext& c) {
  return std::make_unique<HeadLinearRunner>(op, c);
}

RunnerPtr make_runner(const graph::RoundInt8& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), out = c.value(op.out);
  return flat_runner(out, [=](const Step& s) {
    const RoundedRows r = s.rounded(out);
    s.launch("round_int8", flat_grid(s.values_of(out)), kFlatThreads, flat_args(s, out),
             std::array<Address, 4>{s.address(x), r.q, r.scale, r.sums});
  });
}

RunnerPtr make_runner(const graph::Hadamard& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), out = c.value(op.out);
  if (op.block > kHadamardValues)
    throw UnsupportedError("a Hadamard transform of blocks of " + std::to_string(op.block) +
                           " values: GPUs have a kernel for up to " +
                           std::to_string(kHadamardValues));
  const Address before = c.constants->put(op.before), after = c.constants->put(op.after);
  args::HadamardArgs a{};
  a.cols = static_cast<uint32_t>(x.cols);
  a.block = static_cast<uint32_t>(op.block);
  a.chunk = static_cast<uint32_t>(std::max(op.block, kHadamardChunk));
  a.has_before = before.buffer != nullptr;
  a.has_after = after.buffer != nullptr;
  a.round = out.type == graph::ValueType::kInt8;
  return flat_runner(out, [=](const Step& s) {
    args::HadamardArgs now = a;
    now.count = static_cast<uint64_t>(s.values_of(out));
    const Result r = result_of(s, out);
    s.launch("hadamard", {blocks_of(s.values_of(out), a.chunk)}, kFlatThreads, now,
             std::array<Address, 7>{s.address(x), before, after, r.y, r.rounded.q, r.rounded.scale,
                                    r.rounded.sums});
  });
}

// In double precision, so on the CPU.
RunnerPtr make_runner(const graph::Observe& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  return flat_runner(x, [=](const Step& s) {
    std::vector<float> rows(static_cast<size_t>(s.values_of(x)));
    s.download(s.address(x), rows.data(), static_cast<int64_t>(rows.size() * sizeof(float)));
    op.sums->add(rows.data(), s.rows_of(x), 0, x.cols);
  });
}

}  // namespace oxibonsai::gpu

// Ops on emulated GPUs against the scalar tier, byte for byte: what goes value by value, norms,
// rope, the Hadamard transform, pictures, recurrent state, the largest of a row.

#include "flush.h"
#include "gpu_compare.h"

using namespace oxibonsai;
using graph::Activation;
using graph::ValueId;
using test::vector_of;

namespace {

// A batch of one sequence, whose inputs are kept here.
struct Rows {
  explicit Rows(int32_t count) { batch.spans = {{0, count, {}, 0, 0}}; }
  Rows& input(const std::string& name, std::vector<float> values, int64_t cols) {
    kept.push_back(std::make_unique<std::vector<float>>(std::move(values)));
    batch.inputs[name] = {kept.back()->data(), batch.rows(), cols};
    return *this;
  }
  graph::Batch batch;
  std::vector<std::unique_ptr<std::vector<float>>> kept;
};

// `make` builds ops over x and z; every float value that it returns becomes an output.
template <class Make>
void check_ops(std::mt19937& random, int32_t rows, int64_t cols, const std::string& name,
               Make make) {
  graph::Graph g;
  const ValueId x = g.add(graph::Input{"x", graph::tokens(), cols}).front();
  const ValueId z = g.add(graph::Input{"z", graph::tokens(), cols}).front();
  int count = 0;
  for (const ValueId id : make(g, x, z)) g.set_output("y" + std::to_string(count++), id);
  const auto n = static_cast<size_t>(rows * cols);
  Rows in(rows);
  in.input("x", test::normal(random, n, 2.0f), cols)
      .input("z", test::small_activations(random, n), cols);
  in.batch.outputs = {rows - 1, 0};
  test::compare_graph(g, in.batch,
                      name + " rows " + std::to_string(rows) + " cols " + std::to_string(cols));
}

void check_elementwise(std::mt19937& random, int32_t rows, int64_t cols) {
  check_ops(random, rows, cols, "elementwise", [&](graph::Graph& g, ValueId x, ValueId z) {
    const auto one = [&](graph::Op op) { return g.add(std::move(op)).front(); };
    const auto v = vector_of(test::normal(random, static_cast<size_t>(cols)));
    const ValueId column = one(graph::SelectColumns{x, 0, 1, cols});
    std::vector<ValueId> made = {one(graph::Add{x, z}),
                                 one(graph::AddVector{x, v}),
                                 one(graph::Scale{z, 0.37f}),
                                 one(graph::Clamp{x, 1.5f}),
                                 one(graph::Softcap{x, 3.0f}),
                                 one(graph::GateRows{z, column}),
                                 one(graph::Xielu{x, 0.8f, 0.7f, 0.5f, -1e-6f}),
                                 one(graph::SelectOutputs{x}),
                                 one(graph::TransposeHeads{x, 2, 3}),
                                 one(graph::JoinHeads{x, z, 6})};
    for (int i = 0; i < graph::kActivations; ++i) {
      const auto activation = static_cast<Activation>(i);
      made.push_back(one(graph::Gated{x, z, activation}));
      if (activation != Activation::kSwigluOai) made.push_back(one(graph::Activate{x, activation}));
    }
    return made;
  });
}

// Each result goes to a matrix of integers too, so that it is rounded where it is made.
void check_norms(std::mt19937& random, int32_t rows, int64_t cols) {
  const auto matrix = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(cols / 32 * 34));
  for (size_t i = 0; i < matrix->size(); ++i) (*matrix)[i] = static_cast<uint8_t>(random() & 0x3F);
  const auto weight = std::make_shared<graph::Weight>("w", quant::QuantType::kQ8_0, 1, cols,
                                                      matrix->data(), nullptr);
  check_ops(random, rows, cols, "norms", [&](graph::Graph& g, ValueId x, ValueId z) {
    const auto one = [&](graph::Op op) { return g.add(std::move(op)).front(); };
    const auto factors = [&](int64_t n) {
      return vector_of(test::normal(random, static_cast<size_t>(n)));
    };
    const auto rounded = [&](ValueId id) {
      graph::Linear op;
      op.x = id;
      op.weights = {weight};
      return g.add(op).front();
    };
    std::vector<ValueId> made;
    for (const bool rounds : {false, true}) {
      const auto keep = [&](graph::Op op) {
        const ValueId id = one(std::move(op));
        made.push_back(rounds ? rounded(id) : id);
      };
      keep(graph::RmsNorm{x, factors(cols), 1e-6f});
      keep(graph::RmsNorm{z, factors(cols / 4), 1e-6f, 4});
      keep(graph::RmsNorm{x, factors(cols), 1e-6f, 4});
      keep(graph::LayerNorm{x, factors(cols), factors(cols), 1e-5f});
      keep(graph::LayerNorm{z, factors(cols), nullptr, 1e-5f});
      keep(graph::LayerNorm{x, factors(cols), factors(cols), 1e-5f, 4});
      keep(graph::LayerNorm{z, factors(cols / 4), nullptr, 1e-5f, 4});
      keep(graph::Hadamard{x, 32, factors(cols), nullptr});
      keep(graph::Hadamard{z, std::min<int64_t>(cols & -cols, 64), nullptr, factors(cols)});
      keep(graph::Gated{x, z, Activation::kSilu});
      keep(graph::Activate{x, Activation::kGelu});
      keep(graph::Xielu{x, 0.8f, 0.7f, 0.5f, -1e-6f});
    }
    made.push_back(rounded(x));
    return made;
  });
}

void check_rope(std::mt19937& random, bool interleaved, int64_t pairs) {
  check_ops(random, 5, 96, "rope", [&](graph::Graph& g, ValueId x, ValueId) {
    std::vector<float> frequencies;
    for (int64_t i = 0; i < pairs; ++i) frequencies.push_back(1.0f / static_cast<float>(1 + i));
    const ValueId table = g.add(graph::RopeTable{vector_of(frequencies), 1.1f}).front();
    return g.add(graph::Rope{x, table, 24, interleaved});
  });
}

// Pairs that read positions on three axes.
void check_axes(std::mt19937& random) {
  graph::Graph g;
  const ValueId x = g.add(graph::Input{"x", graph::tokens(), 48}).front();
  graph::RopeTable op{vector_of({1.0f, 0.5f, 0.1f, 1.0f, 0.3f}), 1.0f};
  op.axes = {0, 2, 1, 2, 0};
  const ValueId table = g.add(op).front();
  g.set_output("y", g.add(graph::Rope{x, table, 24, false}).front());
  Rows in(4);
  in.input("x", test::normal(random, 4 * 48), 48);
  in.batch.axes = 3;
  in.batch.positions = {0, 900, 3, 7, 7, 7, 12345, 0, 2, 5, 6, 0};
  test::compare_graph(g, in.batch, "rope over axes");
}

// More rows than a grid has blocks in its second dimension.
void check_many_rows(std::mt19937& random) {
  const auto matrix = std::make_shared<std::vector<uint8_t>>(34 * 3);
  for (uint8_t& b : *matrix) b = static_cast<uint8_t>(random() & 0x3F);
  const auto weight =
      std::make_shared<graph::Weight>("w", quant::QuantType::kQ8_0, 3, 32, matrix->data(), nullptr);
  check_ops(random, 70001, 32, "many", [&](graph::Graph& g, ValueId x, ValueId z) {
    const ValueId table = g.add(graph::RopeTable{vector_of({1.0f, 0.25f})}).front();
    graph::Linear op;
    op.x = g.add(graph::Add{x, z}).front();
    op.weights = {weight};
    return std::vector<ValueId>{g.add(op).front(), g.add(graph::Rope{x, table, 8, false}).front()};
  });
}

void check_inserted(std::mt19937& random, bool added) {
  graph::Graph g;
  const ValueId x = g.add(graph::Input{"x", graph::tokens(), 40}).front();
  const ValueId rows = g.add(graph::Input{"rows", graph::input_rows("rows"), 90}).front();
  g.set_output("y", g.add(graph::InsertRows{x, rows, 33, added}).front());
  Rows in(5);
  in.input("x", test::normal(random, 5 * 40), 40);
  const auto inserted = test::normal(random, 3 * 90);
  in.batch.inputs["rows"] = {inserted.data(), 3, 90};
  in.batch.tokens = {5, -3, 0, -1, 7};
  test::compare_graph(g, in.batch, added ? "rows added" : "rows inserted");
}

// A picture of 5 x 7 tokens through a residual block and an enlargement; halved again by a stride.
void check_picture(std::mt19937& random, int64_t channels, int64_t made) {
  graph::Graph g;
  const auto one = [&](graph::Op op) { return g.add(std::move(op)).front(); };
  const auto numbers = [&](int64_t n) {
    return vector_of(test::normal(random, static_cast<size_t>(n)));
  };
  const auto conv = [&](ValueId x, int64_t in, int64_t out, int kernel) {
    graph::Conv2d op;
    op.x = x;
    op.weight = graph::blocked_weight(numbers(out * in * kernel * kernel)->data(), out, in, kernel);
    op.channels = out;
    op.kernel = kernel;
    return op;
  };
  const ValueId x = one(graph::Input{"x", graph::tokens(), channels});
  graph::Conv2d first = conv(x, channels, made, 3);
  first.moments = one(graph::GroupMoments{x, 4, 1e-6f});
  first.norm_weight = numbers(channels);
  first.norm_bias = numbers(channels);
  first.silu = true;
  first.bias = numbers(made);
  first.pad = 1;
  graph::Conv2d shortcut = conv(x, channels, made, 1);
  first.add = one(shortcut);
  const ValueId h = one(first);
  graph::Conv2d larger = conv(h, made, 5, 3);
  larger.upsample = 2;
  larger.pad = 1;
  const ValueId large = one(larger);
  graph::Conv2d smaller = conv(large, 5, 3, 3);
  smaller.stride = 2;
  g.set_output("moments", first.moments);
  g.set_output("h", h);
  g.set_output("large", large);
  g.set_output("small", one(smaller));
  Rows in(35);
  in.input("x", test::normal(random, static_cast<size_t>(35 * channels), 2.0f), channels);
  in.batch.grid_width = 7;
  test::compare_graph(g, in.batch, "picture " + std::to_string(channels));
}

// Rows of two inputs, joined, shifted, scaled and gated by sines of a number, taken apart again;
// one of them goes to a matrix of integers, for which it is rounded.
void check_modulation(std::mt19937& random) {
  constexpr int64_t kCols = 64;
  const std::vector<uint8_t> matrix(2 * 34, 0x31);
  const auto weight = std::make_shared<graph::Weight>("w", quant::QuantType::kQ8_0, 1, kCols,
                                                      matrix.data(), nullptr);
  graph::Graph g;
  const auto one = [&](graph::Op op) { return g.add(std::move(op)).front(); };
  const ValueId a = one(graph::Input{"a", graph::input_rows("a"), kCols});
  const ValueId b = one(graph::Input{"b", graph::input_rows("b"), kCols});
  const ValueId time = one(graph::Input{"time", graph::sequences(), 1});
  std::vector<float> frequencies;
  for (int i = 0; i < kCols / 2; ++i) frequencies.push_back(1.0f / static_cast<float>(1 + i));
  const ValueId sines = one(graph::Sinusoids{time, vector_of(frequencies)});
  const ValueId joined = one(graph::JoinRows{a, b});
  const ValueId modulated = one(graph::Modulate{joined, sines, sines});
  const ValueId gated = one(graph::AddGated{joined, modulated, sines});
  const std::vector<ValueId> parts =
      g.add(graph::SplitRows{gated, graph::input_rows("a"), graph::input_rows("b")});
  graph::Linear linear;
  linear.x = one(graph::Modulate{parts[1], sines, sines});
  linear.weights = {weight};
  g.set_output("sines", sines);
  g.set_output("a", parts[0]);
  g.set_output("b", parts[1]);
  g.set_output("rounded", one(linear));
  graph::Batch batch;
  batch.spans = {{0, 12, {}, 0, 0}};
  const auto x = test::normal(random, 5 * kCols), z = test::normal(random, 7 * kCols);
  const float now = 958.0853882f;
  batch.inputs = {{"a", {x.data(), 5, kCols}}, {"b", {z.data(), 7, kCols}}, {"time", {&now, 1, 1}}};
  test::compare_graph(g, batch, "modulation");
}

// Three steps of two sequences over a graph with a slot, the last of which leaves the states after
// some rows in slots of their own; then all are read. `inputs`: names and widths.
void check_recurrent(std::mt19937& random, const graph::Graph& g,
                     const std::vector<std::pair<std::string, int64_t>>& inputs,
                     const std::string& name) {
  const auto device = test::emulated_gpu();
  cpu::CpuDevice scalar(cpu::table("scalar"), 1);
  const auto truth = scalar.compile(g);
  const auto found = device->compile(g);
  constexpr int kSlots = 6;
  cpu::Slots slots(g.state().slot, kSlots);
  gpu::Slots gpu_slots(device->backend(), g.state().slot, kSlots);
  int32_t first = 0;
  for (const int32_t count : {1, 2, 18}) {
    graph::Batch batch;
    batch.spans = {{first, count, {}, 0, 2}, {0, 3, {}, 0, 0}};
    if (count > 2) {
      batch.spans[0].row_slots = {4, 1};
      batch.spans[1].row_slots = {3, 5};
    }
    std::vector<std::vector<float>> kept;
    for (const auto& [input, cols] : inputs)
      kept.push_back(test::normal(random, static_cast<size_t>((count + 3) * cols)));
    for (size_t i = 0; i < inputs.size(); ++i)
      batch.inputs[inputs[i].first] = {kept[i].data(), count + 3, inputs[i].second};
    test::check_same(test::run(*truth, batch, cpu::State{{}, &slots}),
                     test::run(*found, batch, gpu::State{{}, &gpu_slots}), name);
    first += count;
  }
  for (int64_t i = 0; i < kSlots; ++i)
    CHECK(std::memcmp(gpu_slots.read(i).data(), slots.read(i),
                      static_cast<size_t>(slots.slot_bytes())) == 0,
          name + " slots");
}

// Inputs of a graph, with their names and widths.
struct Inputs {
  ValueId add(graph::Graph& g, const std::string& name, int64_t cols) {
    widths.emplace_back(name, cols);
    return g.add(graph::Input{name, graph::tokens(), cols}).front();
  }
  std::vector<std::pair<std::string, int64_t>> widths;
};

void check_conv(std::mt19937& random, int taps) {
  constexpr int kChannels = 130;
  graph::Graph g;
  Inputs in;
  g.add_slot(5);
  graph::Conv1d op;
  op.slot = g.add_slot((taps - 1) * kChannels);
  op.x = in.add(g, "x", kChannels);
  op.weight = vector_of(test::normal(random, static_cast<size_t>(kChannels * taps)));
  op.bias = vector_of(test::normal(random, kChannels));
  op.taps = taps;
  op.silu = taps == 4;
  g.set_output("y", g.add(op).front());
  check_recurrent(random, g, in.widths, "conv1d");
}

graph::Vector negative(std::mt19937& random, int64_t n) {
  std::vector<float> values = test::normal(random, static_cast<size_t>(n));
  for (float& v : values) v = -std::fabs(v);
  return vector_of(std::move(values));
}

void check_delta(std::mt19937& random, bool tiled) {
  constexpr int kKeyHeads = 2, kHeads = 4, kKeyDim = 70, kValueDim = 20;
  graph::Graph g;
  Inputs in;
  graph::GatedDelta op;
  op.slot = g.add_slot(graph::scan_floats(kHeads, kKeyDim, kValueDim));
  op.qkv = in.add(g, "qkv", 2 * kKeyHeads * kKeyDim + kHeads * kValueDim);
  op.alpha = in.add(g, "alpha", kHeads);
  op.beta = in.add(g, "beta", kHeads);
  op.dt_bias = vector_of(test::normal(random, kHeads));
  op.decay = negative(random, kHeads);
  op.key_heads = kKeyHeads;
  op.key_dim = kKeyDim;
  op.value_dim = kValueDim;
  op.tiled = tiled;
  op.eps = 1e-6f;
  g.set_output("y", g.add(op).front());
  check_recurrent(random, g, in.widths, "gated_delta");
}

void check_mamba2(std::mt19937& random) {
  constexpr int kHeads = 4, kGroups = 2, kState = 33, kHeadDim = 40;
  graph::Graph g;
  Inputs in;
  graph::Mamba2Scan op;
  op.slot = g.add_slot(graph::scan_floats(kHeads, kState, kHeadDim));
  op.xbc = in.add(g, "xbc", kHeads * kHeadDim + 2 * kGroups * kState);
  op.time_step = in.add(g, "step", kHeads);
  op.dt_bias = vector_of(test::normal(random, kHeads));
  op.decay = negative(random, kHeads);
  op.skip = vector_of(test::normal(random, kHeads));
  op.groups = kGroups;
  op.state_dim = kState;
  g.set_output("y", g.add(op).front());
  check_recurrent(random, g, in.widths, "mamba2_scan");
}

void check_mamba(std::mt19937& random) {
  constexpr int kChannels = 150, kState = 9;
  graph::Graph g;
  Inputs in;
  graph::MambaScan op;
  op.slot = g.add_slot(graph::scan_floats(1, kState, kChannels));
  op.x = in.add(g, "x", kChannels);
  op.time_step = in.add(g, "step", kChannels);
  op.b = in.add(g, "b", kState);
  op.c = in.add(g, "c", kState);
  op.dt_bias = vector_of(test::normal(random, kChannels));
  op.skip = vector_of(test::normal(random, kChannels));
  op.decay = negative(random, kChannels * kState);
  g.set_output("y", g.add(op).front());
  check_recurrent(random, g, in.widths, "mamba_scan");
}

void check_wkv7(std::mt19937& random) {
  constexpr int kHeads = 3, kDim = 21;
  graph::Graph g;
  Inputs in;
  graph::Wkv7Scan op;
  op.slot = g.add_slot(graph::scan_floats(kHeads, kDim, kDim));
  op.r = in.add(g, "r", kHeads * kDim);
  op.w = in.add(g, "w", kHeads * kDim);
  op.k = in.add(g, "k", kHeads * kDim);
  op.v = in.add(g, "v", kHeads * kDim);
  // Removal keys longer than 1 would let the state grow without end.
  op.kk = g.add(graph::Scale{in.add(g, "kk", kHeads * kDim), 0.1f}).front();
  op.a = g.add(graph::Scale{in.add(g, "a", kHeads * kDim), 0.1f}).front();
  op.head_dim = kDim;
  g.set_output("y", g.add(op).front());
  check_recurrent(random, g, in.widths, "wkv7_scan");
}

void check_top(std::mt19937& random) {
  constexpr int64_t kCols = 4100;  // two parts and four columns, which are less than kTop
  constexpr int kTop = 7;
  graph::Graph g;
  const ValueId x = g.add(graph::Input{"x", graph::tokens(), kCols}).front();
  g.set_output("y", g.add(graph::Scale{x, 1.0f}).front());
  auto values = test::normal(random, 2 * kCols);
  values[5] = values[2900] = values[2901] = values[4099] = 9.0f;
  values[17] = NAN;
  for (int64_t i = kCols + 3; i < 2 * kCols; ++i) values[i] = -INFINITY;  // most of a mask's row
  graph::Batch batch;
  batch.spans = {{0, 2, {}, 0, 0}};
  batch.inputs["x"] = {values.data(), 2, kCols};
  const auto device = test::emulated_gpu();
  std::vector<int32_t> indices(2 * kTop);
  std::vector<float> found(2 * kTop);
  const auto executable = device->compile(g);
  executable->run_top(batch, {}, 0, kTop, indices.data(), found.data());
  CHECK((std::vector<int32_t>(indices.begin(), indices.begin() + 4) ==
         std::vector<int32_t>{5, 2900, 2901, 4099}),
        "equal values in order");
  std::vector<float> kept(kCols);
  executable->read_row(0, 1, kept.data());
  CHECK(std::memcmp(kept.data(), values.data() + kCols, kCols * sizeof(float)) == 0,
        "rows stay on the device");
  for (int r = 0; r < 2; ++r) {
    std::vector<int32_t> order(kCols);
    for (int32_t i = 0; i < kCols; ++i) order[static_cast<size_t>(i)] = i;
    const float* row = values.data() + r * kCols;
    const auto key = [&](int32_t i) { return std::isnan(row[i]) ? -INFINITY : row[i]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return key(a) > key(b); });
    for (int i = 0; i < kTop; ++i) {
      CHECK(indices[static_cast<size_t>(r * kTop + i)] == order[static_cast<size_t>(i)], "top");
      CHECK(found[static_cast<size_t>(r * kTop + i)] == row[order[static_cast<size_t>(i)]], "top");
    }
  }
}

}  // namespace

int main() {
  std::mt19937 random(21);
  check_elementwise(random, 3, 300);
  check_norms(random, 2, 96);
  check_norms(random, 1, 1056);
  for (const bool interleaved : {false, true})
    for (const int64_t pairs : {12, 8}) check_rope(random, interleaved, pairs);
  check_picture(random, 12, 40);
  check_picture(random, 36, 8);
  check_modulation(random);
  check_many_rows(random);
  check_axes(random);
  for (const bool added : {false, true}) check_inserted(random, added);
  for (const int taps : {2, 4}) check_conv(random, taps);
  for (const bool tiled : {false, true}) check_delta(random, tiled);
  check_mamba2(random);
  check_mamba(random);
  check_wkv7(random);
  check_top(random);
  return test::finish("gpu ops");
}

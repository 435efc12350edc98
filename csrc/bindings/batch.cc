#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <variant>

#include "base/check.h"
#include "bindings/register.h"
#include "graph/graph.h"
#include "graph/serialized_batch.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using graph::Batch;
using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Words = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;
using Positions = py::array_t<int32_t, py::array::c_style>;
using Blocks = std::vector<std::pair<int32_t, int32_t>>;
// How many of the last rows want a result, or which rows.
using Wanted = std::variant<int64_t, std::vector<int64_t>>;

// A batch keeps the arrays of its inputs. A step reads it without the GIL: what changes it
// meanwhile changes a copy.
class PyBatch {
 public:
  PyBatch() = default;
  PyBatch(Batch batch, std::vector<Floats> arrays)
      : batch_(std::make_shared<Batch>(std::move(batch))), arrays_(std::move(arrays)) {}

  std::shared_ptr<const Batch> shared() const { return batch_; }

  void add(const std::vector<int32_t>& tokens, int32_t first, std::vector<int32_t> pages,
           int32_t pool, int32_t slot, const Wanted& wanted, Blocks blocks, int32_t visible,
           int32_t encoded, std::vector<int32_t> row_slots) {
    add_span(static_cast<int64_t>(tokens.size()), first, std::move(pages), pool, slot, wanted,
             std::move(blocks));
    Batch& batch = own();
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
    batch.spans.back().visible = visible;
    batch.spans.back().encoded = encoded;
    batch.spans.back().row_slots = std::move(row_slots);
  }

  void add_span(int64_t count, int32_t first, std::vector<int32_t> pages, int32_t pool,
                int32_t slot, const Wanted& wanted, Blocks blocks) {
    if (count < 1 || count > INT32_MAX) throw RequestError("a batch needs at least one row");
    Batch& batch = own();
    const int64_t begin = batch.rows();
    const auto want = [&](int64_t row) {
      if (row < 0 || row >= count) throw RequestError("an output row is not in the batch");
      batch.outputs.push_back(static_cast<int32_t>(begin + row));
    };
    if (const auto* last = std::get_if<int64_t>(&wanted)) {
      if (*last < 0 || *last > count) throw RequestError("an output row is not in the batch");
      for (int64_t i = count - *last; i < count; ++i) want(i);
    } else {
      for (const int64_t row : std::get<std::vector<int64_t>>(wanted)) want(row);
    }
    graph::Span span;
    span.first = first;
    span.count = static_cast<int32_t>(count);
    span.pages = std::move(pages);
    span.pool = pool;
    span.slot = slot;
    span.blocks = std::move(blocks);
    batch.spans.push_back(std::move(span));
  }

  void set_grid(int32_t width) { own().grid_width = width; }

  void set_input(const std::string& name, const Floats& values) {
    if (values.ndim() != 2) throw RequestError("the input " + name + " is no matrix");
    arrays_.push_back(values);
    own().inputs[name] = {values.data(), values.shape(0), values.shape(1)};
  }

  void set_positions(const Positions& values) {
    if (values.ndim() != 2 || values.shape(1) < 1 || values.shape(1) > INT32_MAX)
      throw RequestError("positions are int32 [rows, axes]");
    Batch& batch = own();
    batch.axes = static_cast<int32_t>(values.shape(1));
    batch.positions.assign(values.data(), values.data() + values.size());
  }

  void set_segments(const std::string& name, std::vector<int32_t> counts) {
    own().segments[name] = std::move(counts);
  }

  std::vector<PyBatch> pieces(int64_t rows) const {
    std::vector<PyBatch> all;
    for (Batch& piece : graph::pieces(*batch_, rows)) all.emplace_back(std::move(piece), arrays_);
    return all;
  }

  // The same rows for a stage of the graph that the batch was made for: the inputs that it has, of
  // this batch or else of what other stages have made, and of positions and segments what it reads.
  PyBatch for_stage(const graph::Graph& stage, const std::map<std::string, Floats>& made) const {
    PyBatch part = *this;
    Batch& kept = part.own();
    kept.inputs.clear();
    kept.segments.clear();
    bool reads_positions = false;
    for (const graph::Op& op : stage.ops()) {
      if (const auto* input = std::get_if<graph::Input>(&op)) {
        const auto own = batch_->inputs.find(input->name);
        const auto other = made.find(input->name);
        if (own != batch_->inputs.end())
          kept.inputs.insert(*own);
        else if (other != made.end())
          part.set_input(input->name, other->second);
      }
      if (const auto* attend = std::get_if<graph::AttendLocal>(&op)) {
        const auto own = batch_->segments.find(attend->segments);
        if (own != batch_->segments.end()) kept.segments.insert(*own);
      }
      if (const auto* table = std::get_if<graph::RopeTable>(&op))
        reads_positions = reads_positions || table->axis_count() > 0;
    }
    if (!reads_positions) kept.positions.clear();
    return part;
  }

 private:
  // The batch to change: of nobody else, while the GIL is held.
  Batch& own() {
    if (batch_.use_count() > 1) batch_ = std::make_shared<Batch>(*batch_);
    return *batch_;
  }

  std::shared_ptr<Batch> batch_ = std::make_shared<Batch>();
  std::vector<Floats> arrays_;
};

}  // namespace

std::shared_ptr<const Batch> native_batch(const py::handle& batch) {
  return batch.cast<const PyBatch&>().shared();
}

void register_batch(py::module_& m) {
  py::class_<PyBatch>(m, "Batch", "What one step runs: spans of sequences, one after the other.")
      .def(py::init<>())
      .def("__len__", [](const PyBatch& b) { return b.shared()->rows(); })
      .def(
          "add", &PyBatch::add, py::arg("tokens"), py::kw_only(), py::arg("first") = 0,
          py::arg("pages") = std::vector<int32_t>{}, py::arg("pool") = 0, py::arg("slot") = 0,
          py::arg("outputs") = 0, py::arg("blocks") = Blocks{}, py::arg("visible") = 0,
          py::arg("encoded") = 0, py::arg("row_slots") = std::vector<int32_t>{},
          "Tokens of one sequence from position `first` on. outputs: how many of the last rows "
          "want a result, or which rows, counted from the first. blocks: (first, end) of positions "
          "whose rows see each other, also later ones. visible: rows that the others see in causal "
          "attention without a cache, the rest is padding; 0: all. encoded: positions of an "
          "encoder's tokens, which come before the decoder's. row_slots: slots that take the "
          "recurrent "
          "state after the last rows but the very last, whose state stays in `slot`.")
      .def("set_grid", &PyBatch::set_grid, py::arg("width"),
           "The tokens are a picture's, row after row, so many in a row.")
      .def("add_span", &PyBatch::add_span, py::arg("count"), py::kw_only(), py::arg("first") = 0,
           py::arg("pages") = std::vector<int32_t>{}, py::arg("pool") = 0, py::arg("slot") = 0,
           py::arg("outputs") = 0, py::arg("blocks") = Blocks{},
           "As add(), for a graph that takes its rows from inputs.")
      .def("set_input", &PyBatch::set_input, py::arg("name"), py::arg("values"),
           "A float32 matrix for an input of the graph.")
      .def("set_positions", &PyBatch::set_positions, py::arg("values"),
           "int32 [rows, axes], for rope that reads several axes; else each row has its position "
           "in its sequence on all of them.")
      .def("set_segments", &PyBatch::set_segments, py::arg("name"), py::arg("counts"),
           "Rows of each run of rows that see each other in ops that name these segments.")
      .def_property_readonly(
          "num_outputs", [](const PyBatch& b) { return b.shared()->outputs.size(); },
          "Rows that want a result.")
      .def(
          "to_words",
          [](const PyBatch& b) {
            const std::vector<int32_t> words = graph::to_words(*b.shared());
            return py::array_t<int32_t>(static_cast<py::ssize_t>(words.size()), words.data());
          },
          "The batch as int32 numbers, for another process.")
      .def_static(
          "from_words",
          [](const Words& words) {
            return PyBatch(graph::from_words({words.data(), words.data() + words.size()}), {});
          },
          py::arg("words"), "The batch that to_words() gave.")
      .def("pieces", &PyBatch::pieces, py::arg("rows"),
           "The same rows in order, as batches of so many, if they can be told apart.")
      .def("for_stage", &PyBatch::for_stage, py::arg("stage"), py::arg("made"),
           "The same rows for a stage of the graph: `made` has what other stages gave.");
}

}  // namespace oxibonsai::bindings

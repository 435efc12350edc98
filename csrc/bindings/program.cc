#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/check.h"
#include "bindings/register.h"
#include "cpu/dispatch.h"
#include "cpu/kv_layout.h"
#include "format/gguf.h"
#include "ops/pack_weights.h"
#include "program/input_sums.h"
#include "program/program.h"
#include "quant/split.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using ops::Weight;
using program::Batch;
using program::InputSums;
using program::KvPages;
using program::KvShape;
using program::Op;
using program::OpKind;
using program::Program;
using program::Slot;
using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Vector = std::vector<float>;

std::shared_ptr<Weight> load_weight(std::shared_ptr<format::GgufFile> file,
                                    const std::string& name) {
  const format::TensorInfo* t = file->find_tensor(name);
  if (t == nullptr) throw FormatError(file->path() + " has no tensor " + name);
  if (!t->type.has_value())
    throw UnsupportedError("tensor " + name + " of " + file->path() + " has type " + t->type_name +
                           ", which this version cannot run");
  int64_t rows = 1;
  for (size_t i = 1; i < t->dims.size(); ++i) rows *= t->dims[i];
  const uint8_t* data = file->data(*t);
  return std::make_shared<Weight>(name, *t->type, rows, t->dims[0], data, std::move(file));
}

ops::Packed pack(const ops::Weights& weights, ThreadPool& pool,
                 const std::function<void(int64_t)>& progress) {
  const py::gil_scoped_release free;
  return ops::pack_weights(weights, cpu::kernels(), pool, [&](int64_t bytes) {
    if (!progress) return;
    const py::gil_scoped_acquire gil;
    progress(bytes);
  });
}

// Weights that an earlier run packed, in a file from byte `offset` on.
void attach(const ops::Weights& weights, const std::string& path, int64_t offset) {
  const auto file = std::make_shared<const format::MappedFile>(path);
  const auto size = static_cast<int64_t>(file->size());
  if (offset < 0 || offset > size || offset % 64 != 0)
    throw RequestError(path + " is no file of packed weights");
  ops::attach_weights(weights, cpu::kernels(), {file->data() + offset, size - offset, file});
}

py::dict inspect_weight(const Weight& w) {
  const quant::BlockReport r = w.inspect();
  return py::dict(py::arg("blocks") = r.blocks, py::arg("not_finite") = r.not_finite,
                  py::arg("codes_of_three") = r.codes_of_three);
}

// Ops come from Python as keyword arguments; what an operation doesn't have keeps its default.
Op make_op(OpKind kind, std::vector<int> in, std::vector<int> out,
           std::vector<std::shared_ptr<Weight>> weights, const std::vector<py::object>& vectors,
           const py::kwargs& rest) {
  Op op{};
  op.kind = kind;
  op.in = std::move(in);
  op.out = std::move(out);
  op.weights = std::move(weights);
  for (const py::object& v : vectors) {
    if (v.is_none()) {
      op.vectors.push_back(nullptr);
      continue;
    }
    const auto values = v.cast<Floats>();
    op.vectors.push_back(
        std::make_shared<const Vector>(values.data(), values.data() + values.size()));
  }
  for (const auto& [key, value] : rest) {
    const auto name = key.cast<std::string>();
    if (name == "quantized")
      op.quantized = value.cast<bool>();
    else if (name == "groups")
      op.groups = value.cast<int>();
    else if (name == "layer")
      op.layer = value.cast<int>();
    else if (name == "heads")
      op.heads = value.cast<int>();
    else if (name == "kv_heads")
      op.kv_heads = value.cast<int>();
    else if (name == "head_dim")
      op.head_dim = value.cast<int>();
    else if (name == "window")
      op.window = value.cast<int>();
    else if (name == "causal")
      op.causal = value.cast<bool>();
    else if (name == "interleaved")
      op.interleaved = value.cast<bool>();
    else if (name == "eps")
      op.eps = value.cast<float>();
    else if (name == "scale")
      op.scale = value.cast<float>();
    else if (name == "softcap")
      op.softcap = value.cast<float>();
    else if (name == "sums")
      op.sums = value.cast<std::shared_ptr<InputSums>>();
    else
      throw RequestError("an operation has no field " + name);
  }
  return op;
}

std::shared_ptr<InputSums> input_sums(int64_t cols) {
  if (cols < 1 || cols > std::numeric_limits<int32_t>::max())
    throw RequestError("sums of inputs need at least one column");
  return std::make_shared<InputSums>(cols);
}

py::array_t<double> squares(const InputSums& sums) {
  return py::array_t<double>(static_cast<py::ssize_t>(sums.cols()), sums.squares().data());
}

py::array_t<float> run(Program& program, const Batch& batch,
                       const std::vector<std::shared_ptr<KvPages>>& pools) {
  std::vector<KvPages*> plain;
  for (const auto& pool : pools) {
    if (pool == nullptr) throw RequestError("a pool of KV pages is None");
    plain.push_back(pool.get());
  }
  py::array_t<float> result({static_cast<py::ssize_t>(batch.outputs.size()),
                             static_cast<py::ssize_t>(program.result_width())});
  float* data = result.mutable_data();
  const py::gil_scoped_release free;
  program.run(batch, plain, data);
  return result;
}

KvShape kv_shape(int layers, int kv_heads, int head_dim, const std::string& type) {
  const auto& names = cpu::kKvTypeNames;
  const auto found = std::find(names.begin(), names.end(), type);
  if (found == names.end())
    throw RequestError("KV type " + type + " does not exist; there are f32, f16, q8_0 and q4_0");
  return {layers, kv_heads, head_dim, static_cast<cpu::KvType>(found - names.begin())};
}

py::bytes read_page(const KvPages& pages, int64_t page) {
  return {reinterpret_cast<const char*>(pages.read(page)), static_cast<size_t>(pages.page_bytes())};
}

void write_page(KvPages& pages, int64_t page, const py::bytes& data) {
  const std::string_view bytes = data;
  pages.write(page, reinterpret_cast<const uint8_t*>(bytes.data()),
              static_cast<int64_t>(bytes.size()));
}

void register_kv_pages(py::module_& m) {
  m.attr("PAGE_SLOTS") = cpu::kPageSlots;
  py::tuple types(cpu::kKvTypeNames.size());
  for (size_t i = 0; i < types.size(); ++i) types[i] = cpu::kKvTypeNames[i];
  m.attr("KV_TYPES") = types;
  m.def(
      "kv_page_bytes",
      [](int layers, int kv_heads, int head_dim, const std::string& type) {
        return program::kv_page_bytes(kv_shape(layers, kv_heads, head_dim, type));
      },
      py::arg("layers"), py::arg("kv_heads"), py::arg("head_dim"), py::arg("type"));
  py::class_<KvPages, std::shared_ptr<KvPages>>(m, "KvPages")
      .def(py::init([](int layers, int kv_heads, int head_dim, const std::string& type,
                       int64_t pages) {
             return std::make_shared<KvPages>(kv_shape(layers, kv_heads, head_dim, type), pages);
           }),
           py::arg("layers"), py::arg("kv_heads"), py::arg("head_dim"), py::arg("type"),
           py::arg("pages"))
      .def_property_readonly(
          "type",
          [](const KvPages& p) { return cpu::kKvTypeNames[static_cast<size_t>(p.shape().type)]; })
      .def_property_readonly("pages", &KvPages::pages)
      .def_property_readonly("page_bytes", &KvPages::page_bytes)
      .def("copy", &KvPages::copy, py::arg("source"), py::arg("target"),
           py::call_guard<py::gil_scoped_release>())
      .def("read", &read_page, py::arg("page"))
      .def("write", &write_page, py::arg("page"), py::arg("data"))
      .def("release", &KvPages::release, py::arg("page"),
           "Gives the page's memory back to the system; what it held is lost.");
}

void register_weight(py::module_& m) {
  py::class_<Weight, std::shared_ptr<Weight>>(m, "Weight")
      .def(py::init(&load_weight), py::arg("file"), py::arg("name"))
      .def_property_readonly("name", &Weight::name)
      .def_property_readonly("rows", &Weight::rows)
      .def_property_readonly("cols", &Weight::cols)
      .def_property_readonly("nbytes", &Weight::bytes, "Bytes in the file.")
      .def_property_readonly("packed_nbytes", &Weight::packed_bytes,
                             "Bytes of the packed form; 0 where the stored one is used.")
      .def_property_readonly("packed", &Weight::packed, "Whether a linear layer runs on it.")
      .def_property_readonly("integer", [](const Weight& w) { return quant::is_integer(w.type()); })
      .def_property_readonly(
          "quant_type", [](const Weight& w) { return std::string(quant::traits(w.type()).name); })
      .def("inspect", &inspect_weight,
           "What a look at every block finds: blocks, not_finite, codes_of_three.");
  py::class_<ops::Packed>(m, "Packed", py::buffer_protocol())
      .def_property_readonly("nbytes", [](const ops::Packed& p) { return p.bytes; })
      .def_buffer([](ops::Packed& p) {
        return py::buffer_info(p.data, static_cast<py::ssize_t>(p.bytes));
      });
  m.def(
      "packed_size",
      [](const ops::Weights& weights) { return ops::packed_size(weights, cpu::kernels()); },
      py::arg("weights"), "Bytes that pack_weights() will take.");
  m.def("attach_weights", &attach, py::arg("weights"), py::arg("path"), py::arg("offset"));
  m.def("pack_weights", &pack, py::arg("weights"), py::arg("pool"), py::arg("progress") = nullptr,
        "Packs what is not packed yet; progress(bytes) after each weight, an exception stops.");
}

void register_op(py::module_& m) {
  py::enum_<OpKind>(m, "OpKind")
      .value("embed", OpKind::kEmbed)
      .value("positions", OpKind::kPositions)
      .value("select", OpKind::kSelect)
      .value("rms_norm", OpKind::kRmsNorm)
      .value("layer_norm", OpKind::kLayerNorm)
      .value("quantize", OpKind::kQuantize)
      .value("linear", OpKind::kLinear)
      .value("rope_table", OpKind::kRopeTable)
      .value("rope", OpKind::kRope)
      .value("attention", OpKind::kAttention)
      .value("swiglu", OpKind::kSwiglu)
      .value("geglu", OpKind::kGeglu)
      .value("gelu", OpKind::kGelu)
      .value("add", OpKind::kAdd)
      .value("scale", OpKind::kScale)
      .value("softcap", OpKind::kSoftcap)
      .value("hadamard", OpKind::kHadamard)
      .value("observe", OpKind::kObserve);
  py::class_<InputSums, std::shared_ptr<InputSums>>(m, "InputSums")
      .def(py::init(&input_sums), py::arg("cols"))
      .def_property_readonly("rows", &InputSums::rows, "Inputs that were summed.")
      .def_property_readonly("squares", &squares,
                             "A copy of the sums, float64 [cols]; not while a step runs.");
  py::class_<Op>(m, "Op").def(py::init(&make_op), py::arg("kind"), py::arg("inputs"),
                              py::arg("outputs"), py::arg("weights"), py::arg("vectors"));
}

}  // namespace

void register_program(py::module_& m) {
  register_weight(m);
  register_op(m);
  register_kv_pages(m);
  py::class_<Batch>(m, "Batch")
      .def(py::init([](std::vector<int32_t> tokens, std::vector<int32_t> positions,
                       std::vector<int32_t> sequence, std::vector<std::vector<int32_t>> pages,
                       std::vector<int32_t> outputs, std::vector<int32_t> pools) {
             return Batch{std::move(tokens), std::move(positions), std::move(sequence),
                          std::move(pages),  std::move(outputs),   std::move(pools)};
           }),
           py::arg("tokens"), py::arg("positions"), py::arg("sequence"), py::arg("pages"),
           py::arg("outputs"), py::arg("pools") = std::vector<int32_t>{});
  py::class_<Program, std::shared_ptr<Program>>(m, "Program")
      .def(py::init([](std::vector<Op> ops, const std::vector<std::pair<int64_t, bool>>& slots,
                       std::shared_ptr<ThreadPool> pool, const std::string& tier) {
             std::vector<Slot> all;
             for (const auto& [width, quantized] : slots) all.push_back({width, quantized});
             return std::make_shared<Program>(std::move(ops), std::move(all), std::move(pool),
                                              tier.empty() ? cpu::kernels() : cpu::table(tier));
           }),
           py::arg("ops"), py::arg("slots"), py::arg("pool"), py::arg("tier") = "")
      .def_property_readonly("result_width", &Program::result_width)
      .def(
          "compare_kernels",
          [](const Program& p, const std::string& tier) {
            const py::gil_scoped_release free;
            return p.compare_kernels_with(cpu::table(tier));
          },
          py::arg("tier"), "What kernels give other bytes than those of a tier; [] if none do.")
      .def("run", &run, py::arg("batch"), py::arg("pools"),
           "float32 [outputs, result_width]; the GIL is free while it runs.");
}

}  // namespace oxibonsai::bindings

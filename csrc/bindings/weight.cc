#include "bindings/graph_class.h"

#include <limits>

#include "base/check.h"
#include "base/computed_bytes.h"
#include "base/mapped_file.h"
#include "base/os/os.h"
#include "bindings/held_object.h"
#include "format/gguf.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using graph::InputSums;
using graph::Weight;
using Bytes = py::array_t<uint8_t, py::array::c_style>;

std::shared_ptr<Weight> load_weight(std::shared_ptr<format::GgufFile> file,
                                    const std::string& name) {
  const format::TensorInfo* t = file->find_tensor(name);
  if (t == nullptr) throw FormatError(file->path() + " has no tensor " + name);
  if (!t->type.has_value())
    throw UnsupportedError("tensor " + name + " of " + file->path() + " has type " + t->type_name +
                           ", which this version cannot run");
  const int64_t rows = t->dims.size() > 1 ? t->dims[1] : 1;
  int64_t experts = 1;
  for (size_t i = 2; i < t->dims.size(); ++i) experts *= t->dims[i];
  const uint8_t* data = file->data(*t);
  return std::make_shared<Weight>(name, *t->type, rows, t->dims[0], data, std::move(file), experts);
}

// Keeps an array of Python's while its bytes are used, which may be a part of a mapped file.
class ArrayOwner : public DataOwner {
 public:
  explicit ArrayOwner(Bytes array)
      : file_(MappedFile::find(array.data())), array_(std::move(array)) {}
  void release(const uint8_t* data, int64_t bytes) const override {
    if (file_ != nullptr) file_->release(data, bytes);
  }
  bool maps_file() const override { return file_ != nullptr; }

 private:
  const MappedFile* const file_;
  const HeldObject<Bytes> array_;
};

std::shared_ptr<Weight> weight_of_blocks(const std::string& name, const std::string& type_name,
                                         const Bytes& blocks, int64_t cols, int64_t experts) {
  const quant::QuantTraits* type = quant::find_by_name(type_name);
  if (type == nullptr) throw RequestError("no quant type is called " + type_name);
  if (cols < 1 || experts < 1 || blocks.ndim() != 2 || blocks.shape(0) < 1 ||
      blocks.shape(0) % experts != 0 || blocks.shape(1) != quant::row_bytes(type->type, cols))
    throw RequestError("the matrix " + name + " needs blocks [rows, bytes of " +
                       std::to_string(cols) + " weights in " + type->name + "]");
  return std::make_shared<Weight>(name, type->type, blocks.shape(0) / experts, cols, blocks.data(),
                                  std::make_shared<const ArrayOwner>(blocks), experts);
}

// Zeros that have addresses and no memory.
class NoBytes : public DataOwner {
 public:
  explicit NoBytes(int64_t size)
      : size_(static_cast<size_t>(size)), mapped_(os::allocate_zeros(size_)) {
    if (mapped_ == nullptr)
      throw RequestError("there are no addresses for a matrix of " + std::to_string(size) +
                         " bytes");
  }
  ~NoBytes() override { os::free_pages(mapped_, size_); }
  NoBytes(const NoBytes&) = delete;
  NoBytes& operator=(const NoBytes&) = delete;
  const uint8_t* data() const { return mapped_; }
  void release(const uint8_t*, int64_t) const override {}
  bool maps_file() const override { return false; }

 private:
  const size_t size_;
  uint8_t* const mapped_;
};

std::shared_ptr<Weight> computed_weight(const std::string& name, const std::string& type_name,
                                        int64_t rows, int64_t cols, int64_t experts,
                                        py::function write) {
  const quant::QuantTraits* type = quant::find_by_name(type_name);
  if (type == nullptr) throw RequestError("no quant type is called " + type_name);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 16;
  if (rows < 1 || cols < 1 || experts < 1 || cols % type->group != 0 || rows > kMost / cols ||
      experts > kMost / (rows * cols))
    throw RequestError("the matrix " + name + " has no shape that there can be");
  const int64_t bytes = experts * rows * quant::row_bytes(type->type, cols);
  const auto held = std::make_shared<HeldObject<py::function>>(std::move(write));
  auto computed = ComputedBytes::make(bytes, [held, bytes](uint8_t* data) {
    const py::gil_scoped_acquire gil;
    // The array is of use while the function runs: the addresses outlive it.
    (**held)(py::array_t<uint8_t>(bytes, data, py::capsule(data, [](void*) {})));
  });
  const uint8_t* data = computed->data();
  return std::make_shared<Weight>(name, type->type, rows, cols, data, std::move(computed), experts);
}

std::shared_ptr<Weight> weight_of_shape(const std::string& name, int64_t rows, int64_t cols,
                                        int64_t experts) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  if (rows < 1 || cols < 1 || experts < 1 || rows > kMost / cols || experts > kMost / (rows * cols))
    throw RequestError("the matrix " + name + " has no shape that there can be");
  auto zeros = std::make_shared<const NoBytes>(experts * rows * cols * 4);
  const uint8_t* data = zeros->data();
  return std::make_shared<Weight>(name, quant::QuantType::kF32, rows, cols, data, std::move(zeros),
                                  experts);
}

py::dict inspect_weight(const Weight& w) {
  quant::BlockReport r;
  {
    const py::gil_scoped_release free;
    r = w.inspect();
  }
  return py::dict(py::arg("blocks") = r.blocks, py::arg("not_finite") = r.not_finite,
                  py::arg("codes_of_three") = r.codes_of_three);
}

std::shared_ptr<InputSums> input_sums(int64_t cols) {
  if (cols < 1 || cols > std::numeric_limits<int32_t>::max())
    throw RequestError("sums of inputs need at least one column");
  return std::make_shared<InputSums>(cols);
}

py::array_t<double> squares(const InputSums& sums) {
  return py::array_t<double>(static_cast<py::ssize_t>(sums.cols()), sums.squares().data());
}

}  // namespace

void register_weight(py::module_& m) {
  py::class_<Weight, std::shared_ptr<Weight>>(m, "Weight")
      .def(py::init(&load_weight), py::arg("file"), py::arg("name"))
      .def_static(
          "from_blocks", &weight_of_blocks, py::arg("name"), py::arg("quant_type"),
          py::arg("blocks"), py::arg("cols"), py::arg("experts") = 1,
          "Matrices whose rows, those of one expert after the other, are an array of bytes; it "
          "is kept and not copied. A part of a mapped file leaves memory once it is packed.")
      .def_static("computed", &computed_weight, py::arg("name"), py::arg("quant_type"),
                  py::arg("rows"), py::arg("cols"), py::arg("experts"), py::arg("write"),
                  "Matrices whose bytes write(array) puts into an array each time that a device "
                  "needs them; they take no memory otherwise.")
      .def_static("of_shape", &weight_of_shape, py::arg("name"), py::arg("rows"), py::arg("cols"),
                  py::arg("experts") = 1,
                  "Matrices of float32 that take no memory, to describe a pass of which the shapes "
                  "are wanted. They are no weights to run: whoever reads them finds zeros, and "
                  "packing them takes the memory of a whole model.")
      .def_property_readonly("name", &Weight::name)
      .def_property_readonly("experts", &Weight::experts, "Matrices in the tensor.")
      .def_property_readonly("rows", &Weight::rows, "Of one matrix.")
      .def_property_readonly("cols", &Weight::cols)
      .def_property_readonly("nbytes", &Weight::bytes, "Bytes in the file.")
      .def_property_readonly("integer", &Weight::integer,
                             "Whether linear layers round their input to int8 for it.")
      .def_property_readonly(
          "quant_type", [](const Weight& w) { return std::string(quant::traits(w.type()).name); })
      .def_property_readonly("first_row", &Weight::first_row,
                             "Where a slice begins in its tensor; else 0.")
      .def("slice", &Weight::slice, py::arg("first"), py::arg("last"),
           "Rows first to last - 1, under the same name.")
      .def("inspect", &inspect_weight,
           "What a look at every block finds: blocks, not_finite, codes_of_three.");
  py::class_<InputSums, std::shared_ptr<InputSums>>(m, "InputSums")
      .def(py::init(&input_sums), py::arg("cols"))
      .def_property_readonly("rows", &InputSums::rows, "Inputs that were summed.")
      .def_property_readonly("squares", &squares,
                             "A copy of the sums, float64 [cols]; not while a step runs.");
}

}  // namespace oxibonsai::bindings

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <string>
#include <string_view>

#include "base/check.h"
#include "base/mapped_file.h"
#include "bindings/register.h"
#include "format/gguf_writer.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using format::GgufWriter;
using format::ValueType;
using Bytes = py::array_t<uint8_t, py::array::c_style | py::array::forcecast>;

// Writes into a binary file of Python's, which waits, is interrupted and fails as all others do.
class FileWriter : public GgufWriter {
 public:
  FileWriter(const py::object& file, uint64_t alignment)
      : GgufWriter([write = file.attr("write")](std::string_view bytes) { put(write, bytes); },
                   alignment),
        file_(file) {}

  void close() {
    check_complete();
    file_.attr("close")();
  }

 private:
  // The kernel's own read of a mapped file that was cut fails with EFAULT; a read here finds zeros,
  // and the check of the file says what happened.
  static void put(const py::object& write, std::string_view bytes) {
    if (MappedFile::find(reinterpret_cast<const uint8_t*>(bytes.data())) == nullptr) {
      write(view(bytes));
      return;
    }
    constexpr size_t kPiece = size_t{1} << 20;
    while (!bytes.empty()) {
      const std::string piece(bytes.substr(0, kPiece));
      write(view(piece));
      bytes.remove_prefix(piece.size());
    }
  }

  static py::memoryview view(std::string_view bytes) {
    return py::memoryview::from_memory(bytes.data(), static_cast<py::ssize_t>(bytes.size()));
  }

  const py::object file_;
};

ValueType type_by_name(const std::string& name) {
  for (uint32_t i = 0; i < static_cast<uint32_t>(ValueType::kCount); ++i)
    if (name == format::value_type_name(static_cast<ValueType>(i)))
      return static_cast<ValueType>(i);
  throw RequestError("GGUF has no value type " + name);
}

template <class T>
std::string number(const py::handle& value) {
  const T v = value.cast<T>();
  return std::string(reinterpret_cast<const char*>(&v), sizeof v);
}

std::string text(const py::handle& value) {
  const py::bytes bytes = value.attr("encode")("utf-8", "surrogateescape");
  return GgufWriter::encode_string(std::string(bytes));
}

std::string encode(ValueType type, const py::handle& value) {
  switch (type) {
    case ValueType::kU8:
      return number<uint8_t>(value);
    case ValueType::kI8:
      return number<int8_t>(value);
    case ValueType::kU16:
      return number<uint16_t>(value);
    case ValueType::kI16:
      return number<int16_t>(value);
    case ValueType::kU32:
      return number<uint32_t>(value);
    case ValueType::kI32:
      return number<int32_t>(value);
    case ValueType::kF32:
      return number<float>(value);
    case ValueType::kBool:
      return number<uint8_t>(py::int_(py::bool_(py::reinterpret_borrow<py::object>(value))));
    case ValueType::kString:
      return text(value);
    case ValueType::kU64:
      return number<uint64_t>(value);
    case ValueType::kI64:
      return number<int64_t>(value);
    case ValueType::kF64:
      return number<double>(value);
    default:
      throw RequestError("write an array as type arr[ELEMENT]");
  }
}

// `type` is a value type's name, or arr[NAME] for a list.
void add_metadata(FileWriter& writer, const std::string& key, const py::object& value,
                  const std::string& type) {
  if (type.rfind("arr[", 0) != 0) {
    const ValueType t = type_by_name(type);
    writer.add_metadata(key, t, encode(t, value));
    return;
  }
  const ValueType element = type_by_name(type.substr(4, type.size() - 5));
  std::string elements;
  uint64_t count = 0;
  for (const py::handle item : value) {
    elements += encode(element, item);
    ++count;
  }
  writer.add_metadata(key, ValueType::kArray, GgufWriter::encode_array(element, count, elements));
}

void add_tensor(FileWriter& writer, const std::string& name, std::vector<uint64_t> shape,
                int32_t gguf_id, uint64_t bytes) {
  writer.add_tensor(name, {shape.rbegin(), shape.rend()}, gguf_id, bytes);
}

}  // namespace

void register_format_writer(py::module_& m) {
  py::class_<FileWriter>(m, "GgufWriter")
      .def(py::init<const py::object&, uint64_t>(), py::arg("file"),
           py::arg("alignment") = GgufWriter::kDefaultAlignment)
      .def("add_metadata", &add_metadata, py::arg("key"), py::arg("value"), py::arg("type"))
      .def("copy_metadata", &GgufWriter::copy_metadata, py::arg("file"), py::arg("key"),
           "Adds a key of another file with its value, byte for byte.")
      .def("add_tensor", &add_tensor, py::arg("name"), py::arg("shape"), py::arg("gguf_id"),
           py::arg("nbytes"), "Declares a tensor; shape has the slowest dimension first.")
      .def("write_header", &GgufWriter::write_header)
      .def(
          "write_tensor",
          [](FileWriter& w, const Bytes& data) { w.write_tensor(data.data(), data.size()); },
          py::arg("data"))
      .def("close", &FileWriter::close,
           "Closes the file; raises RequestError if a tensor has not been written.");
}

}  // namespace oxibonsai::bindings

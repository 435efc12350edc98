#include "bindings/register.h"

PYBIND11_MODULE(_core, m) {
  using namespace oxibonsai::bindings;
  m.doc() = "The compiled core of oxibonsai: formats, graphs, devices, sampling.";
  register_errors(m);
  register_quant(m);
  register_encode(m);
  register_format(m);
  register_format_writer(m);
  register_cpu(m);
  register_graph(m);
  register_tensor_parallel(m);
  register_batch(m);
  register_device(m);
  register_gpu(m);
  register_sampling(m);
}

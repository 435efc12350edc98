#include "simd.h"
//
#include "cpu/body/math.h"
//
#include "cpu/body/elementwise.h"
#include "cpu/body/fill.h"
#include "cpu/body/hadamard.h"

namespace oxibonsai::cpu::OXI_TIER {

namespace {

using graph::Activation;

template <class A>
void fill_activation(Activation activation, KernelTable& table) {
  table.gated[static_cast<int>(activation)] = &gated<A>;
  table.activate[static_cast<int>(activation)] = &activate<A>;
}

}  // namespace

void fill_elementwise(KernelTable& table) {
  table.quantize = &quantize;
  table.rope_halves = &rope_halves;
  table.rope_pairs = &rope_pairs;
  table.weighted_sum = &weighted_sum;
  fill_activation<Silu>(Activation::kSilu, table);
  fill_activation<Gelu>(Activation::kGelu, table);
  fill_activation<GeluTanh>(Activation::kGeluTanh, table);
  fill_activation<Relu>(Activation::kRelu, table);
  fill_activation<Relu2>(Activation::kRelu2, table);
  fill_activation<Sigmoid>(Activation::kSigmoid, table);
  fill_activation<Identity>(Activation::kIdentity, table);
  table.gated[static_cast<int>(Activation::kSwigluOai)] = &swiglu_oai;
  table.add = &add_rows;
  table.hadamard = &hadamard;
  table.scale = &scale_row;
  table.xielu = &xielu_row;
  table.clamp = &clamp_row;
  table.softcap = &softcap_row;
  table.to_half = &to_half_row;
  table.argmax = &argmax;
  table.exp = &exp_row;
  table.tanh = &tanh_row;
  table.erf = &erf_row;
  table.softplus = &softplus_row;
}

}  // namespace oxibonsai::cpu::OXI_TIER

#include "simd.h"
//
#include "cpu/body/math.h"
//
#include "cpu/body/elementwise.h"
#include "cpu/body/fill.h"
#include "cpu/body/hadamard.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_elementwise(KernelTable& table) {
  table.quantize = &quantize;
  table.rope_halves = &rope_halves;
  table.rope_pairs = &rope_pairs;
  table.swiglu = &swiglu;
  table.swiglu_oai = &swiglu_oai;
  table.weighted_sum = &weighted_sum;
  table.geglu = &geglu;
  table.sigmoid_gate = &sigmoid_gate;
  table.gelu = &gelu_row;
  table.add = &add_rows;
  table.hadamard = &hadamard;
  table.scale = &scale_row;
  table.softcap = &softcap_row;
  table.to_half = &to_half_row;
  table.argmax = &argmax;
  table.exp = &exp_row;
  table.tanh = &tanh_row;
  table.erf = &erf_row;
  table.softplus = &softplus_row;
  table.sigmoid = &sigmoid_row;
}

}  // namespace oxibonsai::cpu::OXI_TIER

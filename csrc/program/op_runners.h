#pragma once

#include "program/step.h"

namespace oxibonsai::program {

// One an operation, in the file of its family: rows.cc, linear.cc, rope.cc, attention.cc,
// observe.cc.
extern const OpRunner kEmbedRunner;
extern const OpRunner kPositionsRunner;
extern const OpRunner kSelectRunner;
extern const OpRunner kRmsNormRunner;
extern const OpRunner kLayerNormRunner;
extern const OpRunner kQuantizeRunner;
extern const OpRunner kLinearRunner;
extern const OpRunner kRopeTableRunner;
extern const OpRunner kRopeRunner;
extern const OpRunner kAttentionRunner;
extern const OpRunner kSwigluRunner;
extern const OpRunner kGegluRunner;
extern const OpRunner kGeluRunner;
extern const OpRunner kAddRunner;
extern const OpRunner kScaleRunner;
extern const OpRunner kSoftcapRunner;
extern const OpRunner kHadamardRunner;
extern const OpRunner kObserveRunner;

// Floats of Step::kept_parts that an attention operation needs for this step.
int64_t kept_floats(const Step& step, const Op& op);

}  // namespace oxibonsai::program

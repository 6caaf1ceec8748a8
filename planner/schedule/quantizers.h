/* Quantiser sites: the places in a layer where GEMM inputs are quantised with a scale from earlier
 * magnitudes, as Transformer Engine's DelayedScaling does (common/recipe/delayed_scaling.cu;
 * history of 1024, scale from the largest magnitude in it, no margin).
 *
 * A site has a scale, and the largest magnitude of each of its last steps, newest first. Everything
 * of a step is quantised with one scale; a new scale is made between the last backward pass and the
 * update, from the magnitudes of all ranks and micro batches. Transformer Engine makes one after
 * each pass of a micro batch; here neither the order of passes nor recompute makes a difference.
 *
 * The sites of all layers lie in one buffer. An op refers to the part of its layer: the reference
 * keeps to that one buffer (PlanRef.modulus is 1) and moves through its elements with the layer. */
#pragma once
#include "planner/model/tensor.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_QUANTIZER_HISTORY 1024 /* --fp8-amax-history-len is emitted with this value */

typedef enum
{
  PLAN_QUANTIZER_INPUT,
  PLAN_QUANTIZER_WEIGHT,
  PLAN_QUANTIZER_GRADIENT, /* of the output; in the format of gradients */
  PLAN_QUANTIZERS_OF_PRODUCT
} PlanQuantizer;

#define PLAN_QUANTIZER_PRODUCTS 4
#define PLAN_QUANTIZERS_OF_LAYER (PLAN_QUANTIZER_PRODUCTS * PLAN_QUANTIZERS_OF_PRODUCT)

/* The weight of the `product`th GEMM of a layer. */
PlanTensorRole plan_quantizer_weight (guint product);

/* The index of a site within its layer, for the GEMM with that weight. */
guint plan_quantizer_of (PlanTensorRole weight, PlanQuantizer site);

G_END_DECLS

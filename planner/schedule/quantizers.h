/* Sites: where products of a layer quantise what they multiply by magnitudes seen before, as
 * Transformer Engine's DelayedScaling does (common/recipe/delayed_scaling.cu): history of 1024,
 * scale by the largest in it, no margin.
 *
 * A site has a scale, and the largest magnitude of each of its last steps, the newest first. All of
 * a step is quantised by one scale, whatever it sees: it is remade between the last backward pass
 * and the update, from the magnitudes of all ranks and micro batches. Transformer Engine does so
 * after each pass of a micro batch; here neither the order of passes nor computing again shows.
 *
 * The sites of all layers lie in one buffer. Of it, an op in a layer names the layer's part, as an
 * array that wraps around at 1. */
#pragma once
#include "planner/model/tensor.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_QUANTIZER_HISTORY 1024 /* what --fp8-amax-history-len is emitted as */

typedef enum
{
  PLAN_QUANTIZER_INPUT,
  PLAN_QUANTIZER_WEIGHT,
  PLAN_QUANTIZER_GRADIENT, /* of the output; in the format of gradients */
  PLAN_QUANTIZERS_OF_PRODUCT
} PlanQuantizer;

#define PLAN_QUANTIZER_PRODUCTS 4
#define PLAN_QUANTIZERS_OF_LAYER (PLAN_QUANTIZER_PRODUCTS * PLAN_QUANTIZERS_OF_PRODUCT)

/* The weight of a layer's product. */
PlanTensorRole plan_quantizer_weight (guint product);

/* Which of its layer's it is, of the product with that weight. */
guint plan_quantizer_of (PlanTensorRole weight, PlanQuantizer site);

G_END_DECLS
